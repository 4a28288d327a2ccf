use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use record::{
    Broken, Capacity, InterimLook, Leaving, Left, Line, RaceRecord, Record, RecordError, Void, Writer,
};
use tempfile::TempDir;

use crate::made;

/// The contents of a record with these lines.
fn written(lines: &[Line]) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("race.jsonl");
    let mut writer = Writer::create(&path).unwrap();
    for line in lines {
        writer.append(line).unwrap();
    }
    std::fs::read(path).unwrap()
}

fn read(bytes: &[u8]) -> Result<RaceRecord, RecordError> {
    RaceRecord::from_bytes(bytes, Path::new("race.jsonl"))
}

/// The lines of a race, in the order in which a race writes them.
fn lines_of(race: &RaceRecord) -> Vec<Line> {
    let mut lines = vec![Line::Header(Box::new(race.header.clone()))];
    lines.extend(race.capacities.iter().cloned().map(Line::Capacity));
    if !race.loads.is_empty() {
        lines.push(Line::Loads(race.loads.clone()));
    }
    for round in &race.rounds {
        lines.push(Line::Round(round.clone()));
        lines
            .extend(race.looks.iter().filter(|look| look.rounds == round.round + 1).cloned().map(Line::Look));
    }
    lines.extend(race.late.iter().cloned().map(Line::Late));
    lines.extend(race.profiles.iter().cloned().map(Line::Profile));
    lines.extend(race.end.clone().map(|end| Line::End { wall_s: end.wall_s, stopped: end.stopped }));
    lines
}

#[track_caller]
fn check_error(bytes: &[u8], message: &str) {
    assert_eq!(read(bytes).expect_err(message).to_string(), message);
}

#[test]
fn a_race_is_read_as_it_was_written() {
    let lines = made::lines(3);
    let race = read(&written(&lines)).unwrap();
    assert_eq!(lines_of(&race), lines);
    assert_eq!(race.notes, Vec::<String>::new());
}

#[test]
fn profiles_follow_the_rounds_and_a_race_without_them_is_written_as_ever() {
    let mut lines = made::lines(1);
    let plain = String::from_utf8(written(&lines)).unwrap();
    assert!(!plain.contains("profile"), "{plain}");
    lines.insert(4, Line::Profile(made::profile(0)));
    lines.insert(5, Line::Profile(made::profile(1)));
    assert_eq!(lines_of(&read(&written(&lines)).unwrap()), lines);
}

#[test]
fn late_answers_follow_the_rounds_and_a_race_without_them_is_written_as_ever() {
    let mut lines = made::lines(1);
    let plain = String::from_utf8(written(&lines)).unwrap();
    assert!(!plain.contains("late\":{") && !plain.contains("why_late"), "{plain}");
    lines.insert(4, Line::Late(made::late(0)));
    lines.insert(5, Line::Late(made::late(1)));
    assert_eq!(lines_of(&read(&written(&lines)).unwrap()), lines);
    let of = |entrants: &[usize]| {
        let late = entrants.iter().map(|entrant| Line::Late(made::late(*entrant)));
        written(&lines[..3].iter().cloned().chain(late).collect::<Vec<_>>())
    };
    check_error(
        &of(&[3]),
        "read record race.jsonl: line 4 does not fit: late answers are of an unknown entrant or load",
    );
    check_error(
        &of(&[0, 0]),
        "read record race.jsonl: line 5 does not fit: late answers of an entrant at a load appear twice",
    );
    assert_eq!(read(&of(&[0])).unwrap().missing_rounds(), [0..=0], "they come after all rounds");
}

#[test]
fn a_broken_candidate_is_in_its_round_and_a_whole_race_is_written_as_ever() {
    let mut lines = made::lines(3);
    let plain = String::from_utf8(written(&lines)).unwrap();
    assert!(!plain.contains("broken") && !plain.contains("path_changed"), "{plain}");
    let Some(Line::Round(round)) = lines.get_mut(4) else { panic!("there is a round") };
    let what = "namespace hg-x-n1: link hgp1 is gone".to_owned();
    round.trials[0].void = Some(Void::PathChanged { what: what.clone() });
    round.broken.push(Broken { entrant: 1, why: what.clone() });
    let race = read(&written(&lines)).unwrap();
    assert_eq!(lines_of(&race), lines);
    assert_eq!((race.broke(1), race.broke(0)), (Some((1, what.as_str())), None));
}

/// The lines of a race with `until`, with looks after its second and its last round.
fn looked_at() -> Vec<Line> {
    let mut lines = made::lines(3);
    let Some(Line::Header(header)) = lines.get_mut(0) else { panic!("there is a header") };
    header.experiment.until = Some("p99:3%".parse().unwrap());
    header.experiment.rounds = 1;
    header.experiment.builds = 1;
    let left = |why| vec![Left { entrant: 1, load: 0, why }];
    lines.insert(
        5,
        Line::Look(InterimLook { number: 1, builds: 2, rounds: 2, left: left(Leaving::Different) }),
    );
    lines.insert(7, Line::Look(InterimLook { number: 2, builds: 3, rounds: 3, left: vec![] }));
    lines
}

#[test]
fn looks_follow_their_rounds_and_a_race_without_them_is_written_as_ever() {
    let plain = String::from_utf8(written(&made::lines(3))).unwrap();
    assert!(!["look", "until", "budget_s"].iter().any(|key| plain.contains(key)), "{plain}");
    let lines = looked_at();
    let race = read(&written(&lines)).unwrap();
    assert_eq!(lines_of(&race), lines);
    assert_eq!(race.left(1, 0).map(|(look, why)| (look.number, why)), Some((1, Leaving::Different)));
    assert_eq!((race.left(0, 0), race.notes.len()), (None, 0));
}

#[test]
fn a_look_that_does_not_fit_is_refused_and_shows_what_was_taken_out() {
    let fault = |change: fn(&mut Vec<Line>)| {
        let mut lines = looked_at();
        change(&mut lines);
        read(&written(&lines)).expect_err("it does not fit").to_string()
    };
    assert!(fault(|lines| lines.insert(6, lines[5].clone())).contains("look 1 is not later"));
    assert!(fault(|lines| lines[7] = lines[5].clone()).contains("look 1 is not later"));
    let unknown = |lines: &mut Vec<Line>| {
        let left = vec![Left { entrant: 9, load: 0, why: Leaving::Precise }];
        lines[7] = Line::Look(InterimLook { number: 2, builds: 3, rounds: 3, left });
    };
    assert!(fault(unknown).contains("at look 2 an unknown entrant or load left"));
    let twice = |lines: &mut Vec<Line>| {
        let left = vec![Left { entrant: 1, load: 0, why: Leaving::Precise }];
        lines[7] = Line::Look(InterimLook { number: 2, builds: 3, rounds: 3, left });
    };
    assert!(fault(twice).contains("left a load for a second time"));
    let too_early = |lines: &mut Vec<Line>| {
        lines[7] = Line::Look(InterimLook { number: 2, builds: 3, rounds: 2, left: vec![] });
    };
    assert!(fault(too_early).contains("look 2 saw 2 rounds of the 3 before it"));
    let unasked = |lines: &mut Vec<Line>| {
        let Line::Header(header) = &mut lines[0] else { panic!("there is a header") };
        header.experiment.until = None;
        header.experiment.rounds = 3;
    };
    assert!(fault(unasked).contains("was not to end for what it sees"));
    // The last look states the number of rounds.
    let mut without = looked_at();
    without.remove(6);
    assert_eq!(read(&written(&without)).unwrap().missing_rounds(), [2..=2]);
}

#[test]
fn every_line_is_json_with_the_crc_of_what_it_carries() {
    for line in written(&made::lines(1)).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        let crc = value["crc32"].as_str().unwrap();
        let carried = &line[br#"{"crc32":"01234567","line":"#.len()..line.len() - 1];
        assert_eq!(serde_json::from_slice::<serde_json::Value>(carried).unwrap(), value["line"]);
        assert_eq!(u32::from_str_radix(crc, 16).unwrap(), bitwise_crc32(carried));
    }
}

/// CRC-32 as in ISO 3309, one bit at a time.
fn bitwise_crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn cut_at_every_byte_it_holds_every_whole_line() {
    let lines = made::lines(1);
    let bytes = written(&lines);
    for length in 0..=bytes.len() {
        let cut = &bytes[..length];
        // A line is complete with its last brace. The newline adds no information.
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        let whole = ends.filter(|end| length >= *end).count();
        match read(cut) {
            Ok(race) => {
                assert_eq!(lines_of(&race), lines[..whole], "cut to {length}");
                let clean =
                    cut.ends_with(b"\n") || bytes[length..].starts_with(b"\n") || length == bytes.len();
                assert_eq!(race.notes.is_empty(), clean, "cut to {length}: {:?}", race.notes);
            }
            Err(RecordError::Empty { .. }) => assert_eq!(whole, 0, "cut to {length}"),
            Err(other) => panic!("cut to {length}: {other}"),
        }
    }
}

#[test]
fn any_damaged_byte_is_found() {
    let lines = made::lines(1);
    let bytes = written(&lines);
    let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for at in 0..bytes.len() - 1 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x04;
        match read(&damaged) {
            Ok(race) => {
                // A damaged newline joins the last two lines into a damaged one.
                assert!(at >= last_line - 1, "the damage of byte {at} was not noticed");
                let lost = if at == last_line - 1 { 2 } else { 1 };
                assert_eq!((race.end.is_none(), race.notes.len()), (true, 1));
                assert_eq!(lines_of(&race), lines[..lines.len() - lost]);
            }
            Err(RecordError::Damaged { .. }) => {
                assert!(at < last_line, "byte {at} of the last line is an error");
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn whatever_is_damaged_in_its_first_bytes_a_race_is_none_but_a_race() {
    let bytes = written(&made::lines(1));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("race.jsonl");
    for at in 0..br#"{"crc32":"01234567","line":"#.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x04;
        std::fs::write(&path, &damaged).unwrap();
        let refused = Record::read(&path).expect_err("it is damaged");
        assert!(matches!(refused, RecordError::Damaged { line: 1, .. }), "byte {at}: {refused}");
    }
}

#[test]
fn zeros_after_a_loss_of_power_are_a_cut() {
    let mut bytes = written(&made::lines(1));
    bytes.extend([0; 4096]);
    let race = read(&bytes).unwrap();
    assert_eq!((race.rounds.len(), race.notes.len()), (1, 1));
}

/// Rewrites a line's content and recomputes its checksum.
fn rewrite(bytes: &[u8], line: usize, change: impl Fn(String) -> String) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, text) in String::from_utf8(bytes.to_vec()).unwrap().lines().enumerate() {
        let carried = &text[br#"{"crc32":"01234567","line":"#.len()..text.len() - 1];
        let carried = if index == line { change(carried.to_owned()) } else { carried.to_owned() };
        let crc = bitwise_crc32(carried.as_bytes());
        out.extend_from_slice(format!("{{\"crc32\":\"{crc:08x}\",\"line\":{carried}}}\n").as_bytes());
    }
    out
}

#[test]
fn lateness_is_read_under_the_name_that_it_had_when_it_was_all_of_the_lag() {
    let mut lines = made::lines(1);
    let Some(Line::Round(round)) = lines.iter_mut().find(|line| matches!(line, Line::Round(_))) else {
        panic!("there is a round");
    };
    round.trials[0].void = Some(Void::GeneratorLate { late_p99_ns: 300_000, limit_ns: 200_000 });
    let bytes = written(&lines);
    let older = rewrite(&bytes, 3, |text| text.replacen("late_p99_ns", "lag_p99_ns", 1));
    assert_ne!(bytes, older);
    assert_eq!(lines_of(&read(&older).unwrap()), lines);
}

#[test]
fn what_a_later_version_wrote_is_refused_in_words() {
    let bytes = written(&made::lines(1));
    let newer = rewrite(&bytes, 0, |text| {
        text.replacen("\"schema\":1,\"hostgap\":\"0.0.0\"", "\"schema\":2,\"hostgap\":\"9.1.0\",\"x\":0", 1)
    });
    check_error(
        &newer,
        "read race.jsonl: hostgap 9.1.0 wrote it in schema 2, and this hostgap reads schema 1",
    );
    let field = rewrite(&bytes, 3, |text| text.replacen("\"build\":0", "\"build\":0,\"moon\":\"full\"", 1));
    let message = read(&field).unwrap_err().to_string();
    let start = "read record race.jsonl: line 4, written by hostgap 0.0.0: unknown field `moon`";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn lines_that_do_not_belong_together_are_refused() {
    let lines = made::lines(2);
    let of = |picks: &[usize]| written(&picks.iter().map(|pick| lines[*pick].clone()).collect::<Vec<_>>());
    check_error(&of(&[0, 1, 2, 0]), "read record race.jsonl: line 4 does not fit: it is a second header");
    check_error(&of(&[0, 2, 2]), "read record race.jsonl: line 3 does not fit: the loads appear twice");
    check_error(
        &of(&[0, 2, 4, 3]),
        "read record race.jsonl: line 4 does not fit: round 0 is not later than the one before it",
    );
    check_error(
        &of(&[0, 3]),
        "read record race.jsonl: line 2 does not fit: round 0 has a trial of an unknown entrant or load",
    );
    let mut strange = lines[..4].to_vec();
    let Some(Line::Round(round)) = strange.last_mut() else { panic!("there is a round") };
    round.broken.push(Broken { entrant: 3, why: String::new() });
    check_error(
        &written(&strange),
        "read record race.jsonl: line 4 does not fit: in round 0 a candidate broke that is no entrant",
    );
    let profiled = |entrants: &[usize]| {
        let profiles = entrants.iter().map(|entrant| Line::Profile(made::profile(*entrant)));
        written(&lines[..3].iter().cloned().chain(profiles).collect::<Vec<_>>())
    };
    check_error(
        &profiled(&[3]),
        "read record race.jsonl: line 4 does not fit: a profile is of an unknown entrant or load",
    );
    check_error(
        &profiled(&[0, 1, 0]),
        "read record race.jsonl: line 6 does not fit: a profile appears twice",
    );
    check_error(
        &of(&[0, 5, 2]),
        "read record race.jsonl: line 3 does not fit: it comes after the end of the race",
    );
    for entrants in [0, 1] {
        let mut alone = lines[0].clone();
        let Line::Header(header) = &mut alone else { panic!("the header is first") };
        header.entrants.truncate(entrants);
        let why = format!("it has {entrants} entrants, and a race has the reference twice");
        check_error(&written(&[alone]), &format!("read record race.jsonl: line 1 does not fit: {why}"));
    }
    check_error(b"", "find a race in race.jsonl: it is empty");
    check_error(b"once upon a time\n", "find a race in race.jsonl: its first line is cut or damaged");
    check_error(b"once\nupon\n", "read record race.jsonl: line 1 is damaged: it is not a line of a record");
}

#[test]
fn a_round_that_was_taken_out_is_missed() {
    let lines = made::lines(6);
    // Header, capacity, loads, rounds 0 to 5, end.
    let without = |gone: &[usize]| {
        let kept = lines.iter().enumerate().filter(|(index, _)| !gone.contains(index));
        written(&kept.map(|(_, line)| line.clone()).collect::<Vec<_>>())
    };
    let check = |gone: &[usize], notes: &[&str]| {
        let race = read(&without(gone)).unwrap();
        let rest = "missing: the record is not whole, and the figures are of the other rounds alone";
        let notes: Vec<String> = notes.iter().map(|note| format!("{note} {rest}")).collect();
        assert_eq!(
            (race.notes, race.rounds.len()),
            (notes, 9 - gone.iter().filter(|at| **at < 9).count() - 3)
        );
    };
    check(&[], &[]);
    check(&[5], &["round 2 (counted from 0) is"]);
    check(&[3], &["round 0 (counted from 0) is"]);
    check(&[4, 6, 7], &["rounds 1, 3 to 4 (counted from 0) are"]);
    // Only the closing line marks the end. Without it the race was cut off, and the missing rounds did not
    // run.
    check(&[8], &["round 5 (counted from 0) is"]);
    check(&[8, 9], &[]);
    check(&[5, 8, 9], &["round 2 (counted from 0) is"]);
    let mut stopped = lines[..5].to_vec();
    stopped.push(Line::End { wall_s: 1.0, stopped: Some("it was interrupted".to_owned()) });
    assert_eq!(read(&written(&stopped)).unwrap().notes, Vec::<String>::new());
    // A profile follows all rounds.
    let mut profiled = lines[..5].to_vec();
    profiled.push(Line::Profile(made::profile(0)));
    assert_eq!(read(&written(&profiled)).unwrap().missing_rounds(), [2..=5]);

    let twice = [&lines[..5], &lines[4..]].concat();
    check_error(
        &written(&twice),
        "read record race.jsonl: line 6 does not fit: round 1 is not later than the one before it",
    );
    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    check_error(
        &written(&swapped),
        "read record race.jsonl: line 6 does not fit: round 1 is not later than the one before it",
    );
    let mut many = lines;
    many.insert(9, many[8].clone());
    let Line::Round(round) = &mut many[9] else { panic!("it is a round") };
    round.round = u32::MAX;
    check_error(
        &written(&many),
        "read record race.jsonl: line 10 does not fit: round 4294967295 is none of the 6 that were asked for",
    );
}

#[test]
fn a_file_of_any_length_is_not_read_into_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("race.jsonl");
    std::fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
    for error in [RaceRecord::read(&path).unwrap_err(), Record::read(&path).unwrap_err()] {
        let text = error.to_string();
        assert!(text.starts_with("read record /") && text.ends_with("it has more than 1 GiB"), "{text}");
    }
}

#[test]
fn a_race_is_never_overwritten_and_never_unreadable() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("race.jsonl");
    let mut writer = Writer::create(&path).unwrap();
    assert_eq!((writer.path(), writer.is_empty()), (path.as_path(), true));
    let error = Writer::create(&path).expect_err("it is there").to_string();
    assert!(error.starts_with("create record /") && error.contains("exists"), "{error}");
    let infinite = Capacity { body_bytes: 1, rate_per_s: f64::INFINITY, samples_per_s: vec![] };
    let error = writer.append(&Line::Capacity(infinite)).expect_err("JSON has no infinity").to_string();
    assert!(error.contains("null"), "{error}");
    assert!(writer.is_empty() && std::fs::read(&path).unwrap().is_empty());
    writer.append(&made::lines(0)[0]).unwrap();
    assert!(!writer.is_empty());
    let error = RaceRecord::read(&folder.path().join("none")).expect_err("it is not there").to_string();
    assert!(error.starts_with("read record /") && error.contains("No such file"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(
        at in 0_usize..6_000, cut in 0_usize..3_000, junk in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| written(&made::lines(1)));
        let bytes = WHOLE.as_slice();
        let at = at.min(bytes.len());
        let rest = (at + cut).min(bytes.len());
        let mixed = [&bytes[..at], &junk, &bytes[rest..]].concat();
        if let Ok(race) = read(&mixed) {
            // Every line that is read has a valid checksum, so it is a line of the race.
            let lines = made::lines(1);
            prop_assert!(lines_of(&race).iter().all(|line| lines.contains(line)));
        }
    }
}
