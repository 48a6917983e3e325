"""Patterns of Java match the same names here as in Java."""

import re

import pytest
from pyspark.sql import SparkSession

from pyspark_timestone.options.java_pattern import python_pattern

NAMES = [
    "a", "b", "c", "A", "Z", "7", "_", "ab", "ba", "abab", "abba", "a.b", "a-b", "a&b", "plant-1", "plant-12",
    "PLANT-1", "Plant_3", "telemetry", "telemetry.v2", "alarms", "alarms-old", "x" * 200,
]  # fmt: skip
"""Names of logs, and one that none can have."""

PATTERNS = [
    "alarms", "alarms.*", "alarms|telemetry", "plant-\\d+", "[a-c&&[^b]]", "[a-z&&[def]]*|[a-c&&[a-b&&[b-c]]]",
    "[a[bc]]+", "[^a[bc]]+", "[^a-c&&[^b]]", "[a-zA-Z&&[^a-m]&&[^M-Y]]", "[\\w&&[^\\d_]]+-\\d", "[a&&b]",
    "\\p{Lower}+", "\\p{Upper}.*", "\\P{Upper}+", "\\p{Alpha}+", "\\p{Digit}", "\\p{Alnum}+", "\\p{Punct}",
    "\\p{IsAlphabetic}+", "\\p{javaLowerCase}+", "\\p{L}+", "\\pL+", "\\PL", "\\p{Lu}", "[\\p{Lower}-]+\\p{Nd}",
    "[^\\p{Lower}]+", "[\\p{Lower}&&[^b]]+", "\\p{XDigit}+", "\\p{Graph}", "\\p{ASCII}{2}",
    "(?<one>[ab])(?<two>[ab])\\k<two>\\k<one>", "(?<n>ab)\\k<n>", "(a)(b)\\1\\2", "(?<=a)b|a(?!b).*|.*(?<!a)b",
    "\\Qa.b\\E", "[\\Q.-\\E]", "a\\.b\\z", "\\Aa\\Z", "^a$",
    "(?i)plant.*", "(?i)[^A]", "(?i:PLANT)-1", "a*+b", "(?>a|ab)b",
    "[a\\-b]+", "[a-]*", "[-a]*", "[.\\-a-b]+", "[\\x61\\u0062]+", "[+--]+", "[a||b]+", "[a~~b]+", "x{200}",
    "plant[-_]\\d{1,2}", "[]a]", "\\W", "[\\W&&[^-]]",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_it_matches_in_java(spark: SparkSession, pattern: str) -> None:
    assert spark._jvm is not None
    matcher = spark._jvm.java.util.regex.Pattern.matches
    ours = re.compile(python_pattern(pattern), re.ASCII)
    assert [name for name in NAMES if ours.fullmatch(name)] == [
        name for name in NAMES if matcher(pattern, name)
    ]


@pytest.mark.parametrize(
    "pattern", ["[a", "[a&&", "[[a]", "\\p{Klingon}", "[\\p{Klingon}]", "\\h", "a(?i)b", "(?U)a"]
)
def test_what_is_no_pattern_or_has_no_translation_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(python_pattern(pattern), re.ASCII)


def test_groups_of_python_may_stay() -> None:
    assert python_pattern("(?P<n>a)(?P=n)") == "(?P<n>a)(?P=n)"
