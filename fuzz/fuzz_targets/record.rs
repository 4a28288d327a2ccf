//! A record that somebody sent. An input is a digit and what it stands for: 0, lines of a race after its header, each
//! under a checksum that holds; 1, a search; 2, a histogram's payload, as it is and compressed.
//!
//! Nothing panics or takes more memory than there are bytes for, and what is read holds together.
#![no_main]

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use libfuzzer_sys::fuzz_target;
use record::{Histogram, RaceRecord, SearchRecord};

/// Of a race of two hosts, which ends for what it sees: every line may follow.
const HEADER: &str = include_str!("../record.header.json");

fuzz_target!(|input: &[u8]| match input.split_first() {
    Some((b'0', lines)) => race(lines),
    Some((b'1', search)) => {
        let _ = SearchRecord::from_bytes(search, Path::new("search.json"));
    }
    Some((b'2', payload)) => both_forms(payload),
    _ => {}
});

fn race(lines: &[u8]) {
    let mut file = Vec::new();
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for line in [HEADER.trim_end().as_bytes()].into_iter().chain(lines) {
        let checksum = format!("{{\"crc32\":\"{:08x}\",\"line\":", crc32fast::hash(line));
        file.extend([checksum.as_bytes(), line, b"}\n"].concat());
    }
    let Ok(race) = RaceRecord::from_bytes(&file, Path::new("race.jsonl")) else { return };
    let (entrants, loads) = (race.header.entrants.len(), race.loads.len());
    assert!(entrants >= 2, "the reference is there twice");
    for round in &race.rounds {
        assert!(round.broken.iter().all(|broken| broken.entrant < entrants));
        for trial in &round.trials {
            assert!(trial.entrant < entrants && trial.load < loads);
            let times = &trial.latencies;
            [&times.response, &times.service, &times.lag].into_iter().for_each(holds_together);
        }
    }
    let missing = race.missing_rounds();
    assert!(missing.is_sorted_by(|one, next| one.end() < next.start()), "{missing:?}");
    assert!(race.rounds.iter().all(|round| missing.iter().all(|range| !range.contains(&round.round))));
}

/// Whether it is compressed makes no difference.
fn both_forms(payload: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(payload).expect("it is written to memory");
    let body = encoder.finish().expect("it is written to memory");
    let length = u32::try_from(body.len()).expect("an input is small").to_be_bytes();
    let compressed = [&0x1c84_9314_u32.to_be_bytes(), &length, body.as_slice()].concat();
    let plain = read(payload);
    if payload.starts_with(&0x1c84_9313_u32.to_be_bytes()) {
        assert_eq!(plain, read(&compressed));
    }
    plain.iter().for_each(holds_together);
}

fn read(payload: &[u8]) -> Option<Histogram> {
    serde_json::from_value(STANDARD.encode(payload).into()).ok()
}

/// Its values ascend, and those that a record may have are read as they are written.
fn holds_together(histogram: &Histogram) {
    assert!(histogram.bins().is_sorted_by(|(one, _), (next, _)| one < next), "{histogram:?}");
    let sum = histogram.bins().iter().map(|(_, count)| u128::from(*count)).sum::<u128>();
    assert_eq!(u128::from(histogram.count()), sum);
    let text = serde_json::to_value(histogram).expect("every histogram can be written");
    let again: Histogram = serde_json::from_value(text.clone()).expect("what is written can be read");
    assert_eq!(again.count(), histogram.count());
    assert_eq!(serde_json::to_value(&again).expect("it can be written"), text);
}
