"""Every name that the closed world knows. Each is one token of the demo policy, so copying it is one decision."""

from __future__ import annotations

STEMS = (
    "sales orders trips sensors inventory payments visits students flights loans games songs movies books claims "
    "tickets events crops players hotels invoices deliveries salaries surveys patients machines stations meters "
    "accounts shipments"
)
FILES = tuple(f"{stem}.csv" for stem in STEMS.split())

NUMBERS = (
    "price quantity revenue cost distance duration score age weight height salary rating tax discount units profit "
    "speed power temperature humidity stock hours minutes amount balance income volume length"
)
NUMERIC_COLUMNS = tuple(NUMBERS.split())

CATEGORIES: dict[str, tuple[str, ...]] = {
    "region": ("north", "south", "east", "west", "central"),
    "color": ("red", "blue", "green", "black", "white"),
    "size": ("small", "medium", "large", "huge", "mini"),
    "status": ("open", "closed", "pending", "failed", "active"),
    "team": ("alpha", "beta", "gamma", "delta", "omega"),
    "city": ("Paris", "London", "Tokyo", "Berlin", "Madrid"),
    "grade": ("gold", "silver", "bronze", "iron", "copper"),
    "channel": ("web", "store", "phone", "email", "partner"),
    "season": ("spring", "summer", "autumn", "winter", "monsoon"),
    "fruit": ("apple", "banana", "cherry", "mango", "grape"),
    "vendor": ("acme", "globex", "initech", "umbrella", "hooli"),
    "category": ("toys", "food", "tools", "garden", "sports"),
}
"""Category columns and all values that each may hold."""

ANSWER_FILES = ("answer.txt", "/workdir/answer.txt")
"""How an instruction may name the file for the answer; the working folder is /workdir."""

NAMES = (
    *FILES,
    *NUMERIC_COLUMNS,
    *CATEGORIES,
    *(value for values in CATEGORIES.values() for value in values),
)
"""All names of files, columns and values."""
