"""Its presence puts this folder on the import path: helpers that several test folders share live here."""
