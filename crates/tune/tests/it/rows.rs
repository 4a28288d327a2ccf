//! Promises that every row must keep.

use std::collections::BTreeSet;

use record::RequestedValue;
use tune::{ByDefault, Lives, Setting, Since, TABLE, Value, ValueKind, all, find};

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<&str> = all().map(|knob| knob.id).collect();
    assert_eq!(names.len(), all().count());
    assert!(all().all(|knob| std::ptr::eq(find(knob.id).unwrap(), knob)));
    // Where knobs are named, these words mean something else.
    assert!(!names.contains("client") && !names.contains("server"));
    let homes: BTreeSet<String> = all().map(|knob| knob.lives.to_string()).collect();
    assert!(homes.len() + 1 >= names.len(), "several knobs live in one place");
}

#[test]
fn every_row_explains_itself() {
    for knob in all() {
        let sentences =
            knob.why.ends_with('.') && knob.why.chars().next().is_some_and(|c| !c.is_whitespace());
        assert!(sentences && !knob.why.contains("  "), "{}: {:?}", knob.id, knob.why);
        assert!(!knob.source.is_empty(), "{}", knob.id);
        if let Lives::Sysctl(key) | Lives::Machine(key) = knob.lives {
            assert!(key.replace('-', "_").ends_with(&format!("/{}", knob.id)), "{key}");
        }
    }
    assert!(TABLE.iter().all(|family| !family.knobs.is_empty() && family.about.ends_with('.')));
}

/// Every row has a default that the knob accepts, or the reason why there is none.
#[test]
fn every_row_knows_its_default() {
    const OLDEST: Since = Since(5, 15);
    for knob in all() {
        assert_eq!(knob.default == ByDefault::Gone, knob.scope().is_none(), "{}", knob.id);
        match knob.default {
            ByDefault::Kernel(values) | ByDefault::Capped(values, _) => {
                let versions: Vec<Since> = values.iter().map(|(since, _)| *since).collect();
                assert!(versions.is_sorted_by(|a, b| a < b), "{}: {versions:?}", knob.id);
                let first = versions.first().unwrap_or_else(|| panic!("{} has no default", knob.id));
                let complete = knob.since.map_or(*first <= OLDEST, |since| *first == since);
                assert!(complete, "{}: no default before Linux {first}", knob.id);
                for (_, value) in values {
                    let read = knob.kind.read(&RequestedValue::Text((*value).to_owned()));
                    assert_eq!(read.map(|value| value.to_string()).as_deref(), Ok(*value), "{}", knob.id);
                    assert_ne!(*value, knob.example, "{}", knob.id);
                }
            }
            ByDefault::Memory(words)
            | ByDefault::Build(words)
            | ByDefault::Driver(words)
            | ByDefault::Unset(words) => assert!(words.len() > 3, "{}: {words:?}", knob.id),
            ByDefault::Gone => {}
        }
    }
}

#[test]
fn every_row_takes_its_example() {
    for knob in all().filter(|knob| knob.scope().is_some()) {
        let setting = Setting::read(knob, &RequestedValue::Text(knob.example.to_owned())).unwrap();
        assert_eq!(setting.value.to_string(), knob.example, "{}", knob.id);
    }
}

/// A value for 32 bits in the kernel is read as such a number, and a value for a list of CPUs as a list of
/// CPUs.
#[test]
fn the_kind_fits_the_place() {
    for knob in all() {
        let fits = |max: u64| u32::try_from(max).is_ok();
        let is_right = match (knob.lives, knob.kind) {
            (Lives::Route(linux::netlink::RouteMetric::CongestionControl), kind) => {
                kind == ValueKind::Algorithm
            }
            (Lives::Queue(tune::QueueFile::RpsCpus), kind) => kind == ValueKind::Cpus,
            (Lives::Queue(tune::QueueFile::XpsCpus), kind) => kind == ValueKind::QueueCpus,
            (Lives::RootQdisc, kind) => kind == ValueKind::Qdisc,
            (Lives::Interrupts, kind) => kind == ValueKind::Cpus,
            (Lives::Rss(part), kind) => kind == ValueKind::Rss(part),
            (Lives::Notrack, ValueKind::Number { max, .. }) => max == u64::from(u16::MAX),
            (Lives::Notrack, _) => false,
            (Lives::Nic(parameters), ValueKind::Switch) => !parameters.is_empty(),
            (
                Lives::Attribute(_) | Lives::Route(_) | Lives::Queue(_) | Lives::Mtu | Lives::Module(_),
                ValueKind::Switch,
            ) => true,
            (
                Lives::Route(_)
                | Lives::Queue(_)
                | Lives::Mtu
                | Lives::Nic(_)
                | Lives::Indirection
                | Lives::Attribute(_)
                | Lives::Debug(_)
                | Lives::Module(_)
                | Lives::CpuLatency,
                ValueKind::Number { max, .. }
                | ValueKind::PowerOfTwo { max, .. }
                | ValueKind::PerQueue { max, .. },
            ) => fits(max),
            (
                Lives::Route(_)
                | Lives::Queue(_)
                | Lives::Mtu
                | Lives::Nic(_)
                | Lives::Indirection
                | Lives::Attribute(_)
                | Lives::Debug(_)
                | Lives::Module(_)
                | Lives::CpuLatency,
                _,
            ) => false,
            // The only mask of CPUs among the parameters.
            (Lives::Machine(_), ValueKind::Cpus) => knob.id == "flow_limit_cpu_bitmap",
            (Lives::Sysctl(_) | Lives::Machine(_), kind) => kind != ValueKind::Cpus,
            (Lives::Nowhere { .. }, _) => true,
        };
        assert!(is_right, "{} lives at {:?} and takes {:?}", knob.id, knob.lives, knob.kind);
        if let ValueKind::Signed { min, max } = knob.kind {
            let read = |number: i64| knob.kind.read(&RequestedValue::Number(number));
            assert!(min < 0 && read(min).is_ok() && read(max).is_ok(), "{}", knob.id);
            assert!(read(min - 1).is_err() && read(max + 1).is_err(), "{}", knob.id);
        }
        if let ValueKind::Number { min, max, .. } = knob.kind {
            assert!(min < max, "{}", knob.id);
            let read = |number: u64| knob.kind.read(&RequestedValue::Text(number.to_string()));
            assert_eq!((read(min), read(max)), (Ok(Value::Number(min)), Ok(Value::Number(max))));
            assert!(read(max + 1).is_err(), "{}", knob.id);
        }
    }
}
