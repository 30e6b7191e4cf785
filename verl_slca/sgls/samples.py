"""Plausible values by the name of a field: what a `city`, a `price` or a `created_at` looks like."""

from __future__ import annotations

import datetime
import functools
import random
import re
import uuid

_WORDS = ("alpha", "amber", "atlas", "cedar", "delta", "ember", "harbor", "juniper", "maple", "meridian", "nova",
          "onyx", "orchid", "quartz", "river", "sierra", "summit", "willow")  # fmt: skip
_CITIES = ("Amsterdam", "Bogota", "Cairo", "Denver", "Kyoto", "Lisbon", "Lyon", "Nairobi", "Oslo", "Quito", "Seoul",
           "Toronto")  # fmt: skip
_PEOPLE = ("Alex Kim", "Ana Silva", "Ben Okafor", "Chloe Martin", "Daniel Novak", "Emma Rossi", "Jonas Berg",
           "Lena Fischer", "Maya Patel", "Omar Haddad")  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "city": _CITIES,
    "location": _CITIES,
    "place": _CITIES,
    "country": ("Brazil", "Canada", "Egypt", "France", "Germany", "Japan", "Kenya", "Norway"),
    "author": _PEOPLE,
    "owner": _PEOPLE,
    "person": _PEOPLE,
    "user": _PEOPLE,
    "company": ("Acme Labs", "Blue Harbor", "Northwind", "Orchid Systems", "Summit Foods"),
    "status": ("active", "completed", "open", "pending"),
    "condition": ("clear", "cloudy", "light rain", "partly cloudy", "sunny", "windy"),
    "currency": ("CHF", "EUR", "GBP", "JPY", "USD"),
    "symbol": ("AAPL", "BTC", "ETH", "MSFT", "NVDA", "TSLA"),
    "language": ("de", "en", "es", "fr", "ja"),
    "color": ("blue", "green", "orange", "red", "violet"),
    "category": ("books", "finance", "health", "music", "science", "sports"),
    "type": ("basic", "premium", "standard"),
    "unit": ("g", "kg", "km", "m"),
    "timezone": ("America/New_York", "Asia/Tokyo", "Europe/Paris", "UTC"),
    "airline": ("Aurora Air", "Blue Wing", "Northern Jet"),
}
_NUMBERS: dict[str, tuple[float, float, int]] = {
    "temperature": (-5, 35, 1),
    "humidity": (20, 95, 0),
    "wind": (0, 60, 1),
    "price": (5, 500, 2),
    "amount": (5, 500, 2),
    "cost": (5, 500, 2),
    "rate": (0.5, 2, 4),
    "rating": (1, 5, 1),
    "score": (0, 1, 2),
    "percent": (0, 100, 1),
    "change": (-5, 5, 2),
    "volume": (1_000, 900_000, 0),
    "year": (1990, 2024, 0),
    "month": (1, 12, 0),
    "day": (1, 28, 0),
    "hour": (0, 23, 0),
    "age": (18, 80, 0),
    "latitude": (-60, 70, 4),
    "lat": (-60, 70, 4),
    "longitude": (-180, 180, 4),
    "lon": (-180, 180, 4),
    "lng": (-180, 180, 4),
    "duration": (5, 240, 0),
    "distance": (1, 900, 1),
    "limit": (1, 20, 0),
    "count": (1, 20, 0),
    "quantity": (1, 20, 0),
    "stock": (20, 500, 0),
    "balance": (100, 9_000, 2),
    "total": (1, 500, 2),
    "size": (1, 5_000, 0),
    "page": (1, 5, 0),
    "id": (100, 99_999, 0),
    "population": (10_000, 5_000_000, 0),
}
_FIRST_DAY = datetime.datetime(2024, 1, 1)


@functools.lru_cache(maxsize=8192)
def tokens(name: str) -> tuple[str, ...]:
    """The lower-case words of an identifier.

    Example:
        >>> tokens("ipma-server-getUserURL_v2")
        ('ipma', 'server', 'get', 'user', 'url', 'v2')
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name[:256])
    return tuple(word.lower() for word in re.split(r"[\W_]+", spaced) if word)


@functools.lru_cache(maxsize=8192)
def number_range(name: str) -> tuple[float, float, int]:
    """Lowest, highest and decimals of a number called `name`; 1 to 100 with two where nothing is known."""
    for word in reversed(tokens(name)):
        if word in _NUMBERS:
            return _NUMBERS[word]
    return (1, 100, 2)


@functools.lru_cache(maxsize=8192)
def is_value(name: str) -> bool:
    """Whether a field of that name holds a value, such as a price or a city, and names no thing."""
    word = (tokens(name) or ("",))[-1]
    return word in _CHOICES or (word in _NUMBERS and word != "id") or word in _FORMAT_OF or word in _PLAIN_VALUES


def text(name: str, rng: random.Random) -> str:
    """A short text that fits a field called `name`."""
    choices, kind, prefix = _kind_of_text(name)
    if choices:
        return rng.choice(choices)
    if kind:
        return formatted(kind, rng) or ""
    if prefix:
        return f"{prefix}_{rng.randrange(16**6):06x}"
    return f"{rng.choice(_WORDS)} {rng.choice(_WORDS)}"


@functools.lru_cache(maxsize=8192)
def _kind_of_text(name: str) -> tuple[tuple[str, ...], str, str]:
    words = tokens(name)
    last = words[-1] if words else ""
    if last in ("id", "key", "token", "hash", "identifier"):
        return (), "", words[-2][:12] if len(words) > 1 else "id"
    for word in reversed(words):
        if word in _CHOICES:
            return _CHOICES[word], "", ""
    return (), _FORMAT_OF.get(last, ""), ""


_PLAIN_VALUES = {"name", "title", "query", "text", "content", "description", "message", "level", "size", "weight",
                 "height", "width", "balance", "stock", "quantity", "total", "number", "value", "kind", "format",
                 "mode", "state", "success", "offset", "priority", "subject", "body"}  # fmt: skip
_FORMAT_OF = {
    "date": "date",
    "time": "time",
    "timestamp": "date-time",
    "at": "date-time",
    "email": "email",
    "url": "uri",
    "uri": "uri",
    "link": "uri",
    "uuid": "uuid",
    "ip": "ipv4",
}


def formatted(kind: str, rng: random.Random) -> str | None:
    """A text of a JSON Schema format, None for a format that is not enforced."""
    if kind in _MOMENTS:
        moment = _FIRST_DAY + datetime.timedelta(minutes=rng.randrange(366 * 24 * 60))
        return moment.strftime(_MOMENTS[kind])
    if kind == "email":
        return f"{rng.choice(_WORDS)}@example.com"
    if kind in ("uri", "url"):
        return f"https://example.com/{rng.choice(_WORDS)}"
    if kind == "uuid":
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    if kind == "ipv4":
        return f"192.0.2.{rng.randint(1, 254)}"
    if kind == "ipv6":
        return f"2001:db8::{rng.randint(1, 0xFFFF):x}"
    return None


_MOMENTS = {"date": "%Y-%m-%d", "date-time": "%Y-%m-%dT%H:%M:%SZ", "time": "%H:%M:%S"}
