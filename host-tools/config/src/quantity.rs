//! Quantities as users write them: `64M`, `1 ms`, `0-3,8`, budgets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::units::{Events, Nanos};
use std::ops::Range;

/// Why a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The invalid part of the text.
    pub at: Range<usize>,
    /// The mistake in it.
    pub message: String,
    /// How to write it correctly.
    pub help: String,
}

const SIZE_HELP: &str = "write a whole number of bytes, with K, M or G for 2^10, 2^20 or 2^30 of \
                         them, or of pages: \"64M\", \"16 pages\"";
const DURATION_HELP: &str = "write a whole number and its unit, one of ns, us, ms, s: \"50 us\"";
const BUDGET_HELP: &str =
    "write events and period: \"20000 events / 1 ms\"; or a rate: \"200 MB/s / 1 ms\"";
const AMOUNT_HELP: &str = "write a number of events, or a rate: \"20000 events\", \"200 MB/s\"";
const SET_HELP: &str = "write numbers and ranges, lowest first, with commas: \"0-3,8\"";

/// Splits a text into its leading number and the trimmed rest, which is the unit.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let trimmed = text.trim_start();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(trimmed.len());
    let digits: String = trimmed[..end].chars().filter(|c| *c != '_').collect();
    Some((digits.parse().ok()?, trimmed[end..].trim()))
}

fn whole(text: &str, message: String, help: &str) -> Malformed {
    Malformed {
        at: 0..text.len(),
        message,
        help: help.to_owned(),
    }
}

/// Parses a number of bytes: `64M`, `420K`, `4096`, `16 pages`.
pub fn size(text: &str) -> Result<u64, Malformed> {
    let (number, unit) = number_and_unit(text)
        .ok_or_else(|| whole(text, format!("`{text}` is not a size"), SIZE_HELP))?;
    let scale = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "page" | "pages" => PAGE_SIZE,
        _ => {
            return Err(whole(
                text,
                format!("`{unit}` is not a unit of size"),
                SIZE_HELP,
            ));
        }
    };
    number
        .checked_mul(scale)
        .ok_or_else(|| whole(text, format!("`{text}` is more than 2^64 bytes"), SIZE_HELP))
}

/// Parses a length of time: `50 us`, `1 ms`.
pub fn duration(text: &str) -> Result<Nanos, Malformed> {
    let (number, unit) = number_and_unit(text).ok_or_else(|| {
        whole(
            text,
            format!("`{}` is not a length of time", text.trim()),
            DURATION_HELP,
        )
    })?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" => {
            return Err(whole(
                text,
                format!("`{}` has no unit of time", text.trim()),
                DURATION_HELP,
            ));
        }
        _ => {
            return Err(whole(
                text,
                format!("`{unit}` is not a unit of time"),
                DURATION_HELP,
            ));
        }
    };
    let nanos = number.checked_mul(scale);
    nanos.map(Nanos).ok_or_else(|| {
        whole(
            text,
            format!("`{}` is more than 584 years", text.trim()),
            DURATION_HELP,
        )
    })
}

/// The amount that a budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Events in a period.
    Events(Events),
    /// Bytes in a second, whatever the period.
    BytesPerSecond(u64),
}

/// Splits a text into its leading number, which may have decimals, as billionths, and its unit.
fn billionths_and_unit(text: &str) -> Option<(u128, &str)> {
    const PLACES: usize = 9;
    let (whole, rest) = number_and_unit(text)?;
    let whole = u128::from(whole) * 1_000_000_000;
    let Some(decimals) = rest.strip_prefix('.') else {
        return Some((whole, rest));
    };
    let end = decimals
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(decimals.len());
    let (digits, unit) = decimals.split_at(end);
    if digits.is_empty() || digits.len() > PLACES {
        return None;
    }
    let part: u128 = format!("{digits:0<PLACES$}").parse().ok()?;
    Some((whole + part, unit.trim()))
}

/// Parses events or a rate: `20000 events`, `200 MB/s`, `1.2 GB/s`.
pub fn amount(text: &str) -> Result<Amount, Malformed> {
    let (billionths, unit) = billionths_and_unit(text).ok_or_else(|| {
        whole(
            text,
            format!("`{}` is not a number of events", text.trim()),
            AMOUNT_HELP,
        )
    })?;
    let scale: u64 = match unit {
        "event" | "events" if billionths.is_multiple_of(1_000_000_000) => {
            let number = (billionths / 1_000_000_000) as u64;
            return Ok(Amount::Events(Events(number)));
        }
        "kB/s" => 1_000,
        "MB/s" => 1_000_000,
        "GB/s" => 1_000_000_000,
        "KiB/s" => 1 << 10,
        "MiB/s" => 1 << 20,
        "GiB/s" => 1 << 30,
        _ => {
            let message = match unit {
                "" => format!("missing unit after `{}`", text.trim()),
                "event" | "events" => format!("`{}` is no whole number of events", text.trim()),
                _ => format!("unknown unit `{unit}`; a budget counts events, or bytes per second"),
            };
            return Err(Malformed {
                at: 0..text.trim_end().len(),
                ..whole(text, message, AMOUNT_HELP)
            });
        }
    };
    // Both factors are below 2^94 and 2^30.
    let rate = u64::try_from(billionths * u128::from(scale) / 1_000_000_000);
    rate.map(Amount::BytesPerSecond).map_err(|_| {
        whole(
            text,
            format!("`{}` is more than 2^64 bytes per second", text.trim()),
            AMOUNT_HELP,
        )
    })
}

/// Parses an amount per period: `20000 events / 1 ms`, `200 MB/s / 1 ms`.
pub fn budget(text: &str) -> Result<(Amount, Nanos), Malformed> {
    let (allowed, period) = text
        .rsplit_once('/')
        .filter(|(_, period)| period.trim() != "s")
        .ok_or_else(|| {
            whole(
                text,
                format!("`{text}` has no period after a `/`"),
                BUDGET_HELP,
            )
        })?;
    let allowed_amount = amount(allowed).map_err(|error| Malformed {
        help: BUDGET_HELP.to_owned(),
        ..error
    })?;
    let offset = allowed.len() + 1;
    let period = duration(period).map_err(|error| {
        let blank = period.len() - period.trim_start().len();
        Malformed {
            at: offset + blank..offset + error.at.end,
            help: BUDGET_HELP.to_owned(),
            ..error
        }
    })?;
    Ok((allowed_amount, period))
}

/// Parses a set of small numbers: `0-3,8`. Keeps their order and rejects duplicates.
pub fn number_set(text: &str, what: &str) -> Result<Vec<(u64, Range<usize>)>, Malformed> {
    let mut numbers: Vec<(u64, Range<usize>)> = Vec::new();
    let mut offset = 0;
    for part in text.split(',') {
        let lead = part.len() - part.trim_start().len();
        let trimmed = part.trim();
        let at = offset + lead..offset + lead + trimmed.len();
        offset += part.len() + 1;
        let fail = |message: String| Malformed {
            at: at.clone(),
            message,
            help: SET_HELP.to_owned(),
        };
        if trimmed.is_empty() {
            let message = if text.trim().is_empty() {
                format!("no {what} is given")
            } else {
                "there is nothing between two commas".to_owned()
            };
            return Err(fail(message));
        }
        let parse = |number: &str| {
            let number = number.trim();
            number
                .parse::<u64>()
                .map_err(|_| fail(format!("`{number}` is not a {what}'s number")))
        };
        let (low, high) = match trimmed.split_once('-') {
            Some((low, high)) => (parse(low)?, parse(high)?),
            None => {
                let number = parse(trimmed)?;
                (number, number)
            }
        };
        if low > high {
            return Err(fail(format!(
                "the range `{trimmed}` is reversed: {low} is more than {high}"
            )));
        }
        if high - low > 1023 {
            return Err(fail(format!(
                "the range `{trimmed}` has {} numbers",
                high - low + 1
            )));
        }
        for number in low..=high {
            if numbers.iter().any(|(other, _)| *other == number) {
                return Err(fail(format!("{what} {number} is given twice")));
            }
            numbers.push((number, at.clone()));
        }
    }
    Ok(numbers)
}

/// Formats a size for people: `16 MiB`, `420 KiB`, `100 bytes`.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

/// Formats a length of time for people: `1 ms`, `50 us`.
pub fn show_duration(time: Nanos) -> String {
    for (scale, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if time.0 >= scale && time.0.is_multiple_of(scale) {
            return format!("{} {unit}", time.0 / scale);
        }
    }
    format!("{} ns", time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size(" 420 K "), Ok(420 << 10));
        assert_eq!(size("4_096"), Ok(4096));
        assert_eq!(size("16 pages"), Ok(65536));
        assert!(
            size("64MB").is_err() && size("").is_err() && size("M").is_err() && size("-1").is_err()
        );
        assert!(size("99999999999G").is_err());
        assert_eq!(show_size(420 << 10), "420 KiB");
        assert_eq!(show_size(4097), "4097 bytes");
    }

    #[test]
    fn durations_and_budgets() {
        assert_eq!(duration("50us"), Ok(Nanos(50_000)));
        assert!(
            duration("50").is_err()
                && duration("5 min").is_err()
                && duration("99999999999 s").is_err()
        );
        let events = |number| Amount::Events(Events(number));
        assert_eq!(
            budget("20_000 events / 1 ms"),
            Ok((events(20_000), Nanos(1_000_000)))
        );
        assert_eq!(budget("1 event/2s"), Ok((events(1), Nanos(2_000_000_000))));
        assert_eq!(
            budget("200 MB/s / 1 ms"),
            Ok((Amount::BytesPerSecond(200_000_000), Nanos(1_000_000)))
        );
        assert_eq!(
            budget("3 GB/s/50us"),
            Ok((Amount::BytesPerSecond(3_000_000_000), Nanos(50_000)))
        );
        assert!(budget("200 MB/s").is_err() && budget("200 MB / 1 ms").is_err());
        assert_eq!(amount("7 events"), Ok(events(7)));
        for (text, rate) in [
            ("1.2 GB/s", 1_200_000_000),
            ("0.5MiB/s", 1 << 19),
            ("200 MiB/s", 200 << 20),
            ("0.000000001 GB/s", 1),
        ] {
            assert_eq!(amount(text), Ok(Amount::BytesPerSecond(rate)), "{text}");
        }
        for bad in [
            "1. GB/s",
            "1.2 events",
            "1.2.3 GB/s",
            "0.0000000001 GB/s",
            ".5 GB/s",
        ] {
            assert!(amount(bad).is_err(), "{bad}");
        }
        assert!(
            amount("7").is_err()
                && amount("99999999999 GB/s").is_err()
                && amount("7 events / 1 ms").is_err()
        );
        assert!(budget("20000 / 1 ms").is_err() && budget("20000 events").is_err());
        assert_eq!(
            budget("20000 events / 1 week").map_err(|error| error.at),
            Err(15..21)
        );
        assert_eq!(show_duration(Nanos(1_500_000)), "1500 us");
    }

    #[test]
    fn sets() {
        let numbers = |text| {
            number_set(text, "color").map(|set| set.into_iter().map(|(n, _)| n).collect::<Vec<_>>())
        };
        assert_eq!(numbers("0-3, 8"), Ok(vec![0, 1, 2, 3, 8]));
        for bad in ["", "3-1", "a", "1,,2", "1-", "0-4,3", "0-99999", "-1"] {
            assert!(numbers(bad).is_err(), "{bad}");
        }
        assert_eq!(
            number_set("0-3,9-8", "color").map_err(|error| error.at),
            Err(4..7)
        );
    }
}
