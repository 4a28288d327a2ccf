//! What knobs take, and how it is read.

use std::fmt;

use linux::CpuSet;
use plan::RssHash;
use record::RequestedValue;

/// The values that a knob takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ValueKind {
    /// A switch: `on` or `off`.
    Switch,
    Number {
        /// The least value accepted.
        min: u64,
        /// The greatest value accepted.
        max: u64,
        /// The unit; empty for levels, modes and sets of bits.
        unit: &'static str,
    },
    /// A number that may be negative.
    Signed {
        /// The least value accepted.
        min: i64,
        /// The greatest value accepted.
        max: i64,
    },
    /// A power of two, or 0 for none.
    PowerOfTwo {
        /// The greatest value accepted.
        max: u64,
        /// The unit of the number.
        unit: &'static str,
    },
    /// A power of two (or 0) for each queue, or a total that is divided among the receive queues of a link.
    PerQueue {
        /// The greatest value accepted.
        max: u64,
        /// The unit of the number.
        unit: &'static str,
    },
    /// Three numbers of bytes, none less than the one before: least, first, most.
    Sizes,
    /// The same of pages: no pressure, pressure, most.
    Pages,
    /// The first and the last of a range of ports.
    Ports,
    /// The name of a congestion control algorithm.
    Algorithm,
    /// A queueing discipline, with options or without.
    Qdisc,
    /// One of a list of words.
    Choice(&'static [&'static str]),
    Cpus,
    /// CPUs of several queues: one list for all, or one list for each group of queues.
    QueueCpus,
    /// What a card hashes flows by.
    Rss(RssPart),
}

/// A value that a knob takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Value {
    /// A number; 0 or 1 for a switch.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A total for all receive queues of a link.
    Shared(u64),
    /// Several numbers, in order.
    Numbers(Vec<u64>),
    Name(String),
    Cpus(Cpus),
    /// Fields of several flow types, or a key alone.
    Rss(Vec<RssHash>),
}

/// A choice of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// No CPUs: the kernel's default behaviour.
    None,
    /// Those of the node of a race, or on a host those near the card: `Site::cpus`.
    Node,
    /// An explicit list of CPUs.
    These(CpuSet),
    /// Several lists, two at least: the queues are shared out over them in blocks, so that of eight queues and two
    /// lists the first four have the first.
    Groups(Vec<CpuSet>),
}

/// What a card hashes received flows by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RssPart {
    /// Fields of their packets, for each flow type its own.
    Fields,
    Key,
}

/// Bytes of the longest name of an algorithm (`TCP_CA_NAME_MAX` in net/tcp.h, with the NUL at its end).
const ALGORITHM_BYTES_MAX: usize = 15;
/// Between the lists of several groups of queues.
const GROUP: char = ';';
/// Behind a number that is shared out.
const PER_QUEUE: &str = "/queues";
/// The most that a number of bytes in `tcp_rmem` and its like can be (`int` in the kernel).
const SIZE_MAX: u64 = i32::MAX as u64;

impl ValueKind {
    /// Parses a value in its written form.
    ///
    /// # Errors
    /// The expected form, in words.
    pub fn read(self, value: &RequestedValue) -> Result<Value, String> {
        let text = value.to_string();
        let text = text.trim();
        self.read_text(text).ok_or_else(|| format!("{self} is expected"))
    }

    /// The greatest number that a value can have; `None` of a kind that has no number, or that is no amount.
    pub fn greatest(self) -> Option<u64> {
        match self {
            ValueKind::Number { max, .. }
            | ValueKind::PowerOfTwo { max, .. }
            | ValueKind::PerQueue { max, .. } => Some(max),
            ValueKind::Sizes | ValueKind::Pages => Some(SIZE_MAX),
            ValueKind::Switch
            | ValueKind::Signed { .. }
            | ValueKind::Ports
            | ValueKind::Algorithm
            | ValueKind::Qdisc
            | ValueKind::Choice(_)
            | ValueKind::Cpus
            | ValueKind::QueueCpus
            | ValueKind::Rss(_) => None,
        }
    }

    fn read_text(self, text: &str) -> Option<Value> {
        match self {
            ValueKind::Switch => match text {
                "0" | "off" => Some(Value::Number(0)),
                "1" | "on" => Some(Value::Number(1)),
                _ => None,
            },
            ValueKind::Number { min, max, .. } => {
                text.parse().ok().filter(|number| (min..=max).contains(number)).map(Value::Number)
            }
            ValueKind::Signed { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(number)).map(Value::Signed)
            }
            ValueKind::PowerOfTwo { max, .. } => {
                let fits = |number: &u64| *number <= max && (*number == 0 || number.is_power_of_two());
                text.parse().ok().filter(fits).map(Value::Number)
            }
            ValueKind::PerQueue { max, unit } => match text.strip_suffix(PER_QUEUE) {
                Some(total) => match (ValueKind::PowerOfTwo { max, unit }).read_text(total)? {
                    Value::Number(total) if total > 0 => Some(Value::Shared(total)),
                    _ => None,
                },
                None => ValueKind::PowerOfTwo { max, unit }.read_text(text),
            },
            ValueKind::Sizes | ValueKind::Pages => numbers(text, 3, 1, SIZE_MAX),
            ValueKind::Ports => numbers(text, 2, 1, u16::MAX.into()),
            ValueKind::Algorithm => {
                let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                let fits = (1..=ALGORITHM_BYTES_MAX).contains(&text.len()) && text.bytes().all(sound);
                fits.then(|| Value::Name(text.to_owned()))
            }
            ValueKind::Qdisc => {
                let words: Vec<&str> = text.split_ascii_whitespace().collect();
                crate::qdisc::read(text).map(|_| Value::Name(words.join(" ")))
            }
            ValueKind::Choice(words) => words.contains(&text).then(|| Value::Name(text.to_owned())),
            ValueKind::Cpus => match text {
                "none" => Some(Value::Cpus(Cpus::None)),
                "node" => Some(Value::Cpus(Cpus::Node)),
                list => {
                    let cpus: CpuSet = list.parse().ok()?;
                    (!cpus.is_empty()).then_some(Value::Cpus(Cpus::These(cpus)))
                }
            },
            ValueKind::QueueCpus if text.contains(GROUP) => {
                let lists = text.split(GROUP).map(|list| match ValueKind::Cpus.read_text(list.trim())? {
                    Value::Cpus(Cpus::These(cpus)) => Some(cpus),
                    _ => None,
                });
                Some(Value::Cpus(Cpus::Groups(lists.collect::<Option<_>>()?)))
            }
            ValueKind::QueueCpus => ValueKind::Cpus.read_text(text),
            ValueKind::Rss(RssPart::Fields) => RssHash::fields_of(text).map(Value::Rss),
            ValueKind::Rss(RssPart::Key) => RssHash::key_of(text).map(|key| Value::Rss(vec![key])),
        }
    }
}

/// A list of numbers, none less than the one before.
fn numbers(text: &str, count: usize, min: u64, max: u64) -> Option<Value> {
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let fits = numbers.len() == count
        && numbers.is_sorted()
        && numbers.iter().all(|number| (min..=max).contains(number));
    fits.then_some(Value::Numbers(numbers))
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |unit: &str| if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        match self {
            ValueKind::Switch => f.write_str("0 or 1"),
            ValueKind::Number { min, max, unit } => write!(f, "a number from {min} to {max}{}", of(unit)),
            ValueKind::Signed { min, max } => write!(f, "a number from {min} to {max}"),
            ValueKind::PowerOfTwo { max, unit } => write!(f, "0 or a power of two up to {max}{}", of(unit)),
            ValueKind::PerQueue { max, unit } => write!(
                f,
                "0 or a power of two up to {max}{}, or \"TOTAL/queues\" for its share of so many",
                of(unit)
            ),
            ValueKind::Sizes => f.write_str("three ascending numbers of bytes, \"least first most\""),
            ValueKind::Pages => f.write_str("three ascending numbers of pages, \"low pressure high\""),
            ValueKind::Ports => f.write_str("two ascending ports, \"first last\""),
            ValueKind::Algorithm => f.write_str("the name of a congestion control algorithm"),
            ValueKind::Qdisc => f.write_str(crate::qdisc::EXPECTED),
            ValueKind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            ValueKind::Cpus => f.write_str("CPUs as a list (\"0-3,8\"), \"node\" for those of the node of a race or those near the card of a host, or \"none\""),
            ValueKind::QueueCpus => write!(f, "{}; or several lists with semicolons (\"0-3;4-7\"), over which the queues are shared out in blocks", ValueKind::Cpus),
            ValueKind::Rss(RssPart::Fields) => f.write_str("\"FLOW FIELDS\", once or several times: FLOW is one of tcp4, udp4, sctp4, tcp6, udp6, sctp6, and FIELDS are letters, s and d for the addresses of sender and receiver, f and n for their ports, m, v and t for the receiver's Ethernet address, VLAN and protocol"),
            ValueKind::Rss(RssPart::Key) => f.write_str("the bytes of a key, as many as the card's own has (\"6d:5a:…\"), or \"symmetric\""),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Signed(number) => number.fmt(f),
            Value::Shared(total) => write!(f, "{total}{PER_QUEUE}"),
            Value::Numbers(numbers) => {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&words.join(" "))
            }
            Value::Name(name) => f.write_str(name),
            Value::Cpus(Cpus::None) => f.write_str("none"),
            Value::Cpus(Cpus::Node) => f.write_str("node"),
            Value::Cpus(Cpus::These(cpus)) => cpus.fmt(f),
            Value::Cpus(Cpus::Groups(lists)) => {
                let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
                f.write_str(&lists.join(";"))
            }
            Value::Rss(hashes) => {
                let words: Vec<String> = hashes.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ValueKind, text: &str, expected: Option<&str>) {
        let found = kind.read(&RequestedValue::Text(text.to_owned())).ok().map(|value| value.to_string());
        assert_eq!(found.as_deref(), expected, "{kind:?} {text:?}");
    }

    #[test]
    fn values_are_read_and_what_is_none_is_refused() {
        check(ValueKind::Switch, "on", Some("1"));
        check(ValueKind::Switch, "2", None);
        let number = ValueKind::Number { min: 1, max: 255, unit: "segments" };
        check(number, " 255 ", Some("255"));
        check(number, "0", None);
        check(number, "-1", None);
        check(number, "1k", None);
        let signed = ValueKind::Signed { min: -31, max: 31 };
        check(signed, "-31", Some("-31"));
        check(signed, "31", Some("31"));
        check(signed, "-32", None);
        let power = ValueKind::PowerOfTwo { max: 4096, unit: "flows" };
        check(power, "0", Some("0"));
        check(power, "4096", Some("4096"));
        check(power, "4095", None);
        check(power, "8192", None);
        let each = ValueKind::PerQueue { max: 4096, unit: "flows" };
        check(each, "1024", Some("1024"));
        check(each, "4096/queues", Some("4096/queues"));
        check(each, "0/queues", None);
        check(each, "8192/queues", None);
        check(each, "4096/", None);
        check(ValueKind::Sizes, "4096\t131072  6291456", Some("4096 131072 6291456"));
        check(ValueKind::Sizes, "4096 131072", None);
        check(ValueKind::Sizes, "131072 4096 6291456", None);
        check(ValueKind::Sizes, "4096 131072 4294967296", None);
        check(ValueKind::Ports, "1024 65535", Some("1024 65535"));
        check(ValueKind::Ports, "1024 65536", None);
        check(ValueKind::Algorithm, "bbr", Some("bbr"));
        check(ValueKind::Algorithm, "a b", None);
        check(ValueKind::Algorithm, "a_name_of_16_byt", None);
        check(ValueKind::Choice(&["fq", "pfifo"]), "fq", Some("fq"));
        check(ValueKind::Choice(&["fq", "pfifo"]), "f", None);
        check(ValueKind::Cpus, "0-2,4", Some("0-2,4"));
        check(ValueKind::Cpus, "none", Some("none"));
        check(ValueKind::Cpus, "", None);
        check(ValueKind::Cpus, "3-1", None);
        check(ValueKind::Cpus, "0-1;2-3", None);
        check(ValueKind::QueueCpus, "0-1; 2-3", Some("0-1;2-3"));
        check(ValueKind::QueueCpus, "none", Some("none"));
        check(ValueKind::QueueCpus, "0-1;none", None);
        check(ValueKind::QueueCpus, "0-1;", None);
        let fields = ValueKind::Rss(RssPart::Fields);
        check(fields, "udp4 nfds  udp6 sd", Some("udp4 sdfn udp6 sd"));
        check(fields, "udp4", None);
        check(fields, "udp4 r", None);
        check(fields, "udp4 sd udp4 sdfn", None);
        let key = ValueKind::Rss(RssPart::Key);
        check(key, "6D:5a:00", Some("6d:5a:00"));
        check(key, "symmetric", Some("symmetric"));
        check(key, "6d5a", None);
        check(key, "", None);
    }

    #[test]
    fn booleans_and_integers_of_a_file_are_values_too() {
        assert_eq!(ValueKind::Switch.read(&RequestedValue::Switch(true)), Ok(Value::Number(1)));
        let number = ValueKind::Number { min: 0, max: 9, unit: "" };
        assert_eq!(number.read(&RequestedValue::Number(7)), Ok(Value::Number(7)));
        assert_eq!(
            number.read(&RequestedValue::Number(-7)),
            Err("a number from 0 to 9 is expected".to_owned())
        );
    }
}
