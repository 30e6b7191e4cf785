"""Your dataset: any parquet file that verl's own `RLHFDataset` reads."""

import random
import sys

import pandas
from tools import TEMPERATURES

QUESTIONS = ("What is the current weather in {}?", "Please get the current weather of {}.")
rng = random.Random(0)
rows = []
for index in range(256):
    city = rng.choice(sorted(TEMPERATURES))
    truth = {"city": city, "temperature": TEMPERATURES[city]}
    rows.append(
        {
            "prompt": [{"role": "user", "content": rng.choice(QUESTIONS).format(city)}],
            "data_source": "my_weather",
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"index": index},
        }
    )
pandas.DataFrame(rows).to_parquet(sys.argv[1])
