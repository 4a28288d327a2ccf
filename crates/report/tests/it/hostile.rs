//! Texts in a record that would control a terminal.

use record::AuthorsRun;
use report::{Style, Summary, analyse, html, json, table};

use crate::made::eventful;

/// Clears the screen, sets the window's title, hides text, reverses the direction, and starts new lines.
const EVIL: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}8m\u{7f}\u{202e}\u{2066}\r\nVerdict: forged.\n\u{1b}[31mred";

fn hostile() -> Summary {
    let mut race = eventful();
    let header = &mut race.header;
    for text in
        [&mut header.hostgap, &mut header.server, &mut header.experiment.name, &mut header.machine.kernel]
    {
        text.push_str(EVIL);
    }
    header.experiment.reading = EVIL.to_owned();
    header.experiment.reading_of = Some(AuthorsRun { date: EVIL.to_owned(), machine: EVIL.to_owned() });
    for figure in &mut header.experiment.published {
        let texts = [&mut figure.what, &mut figure.source, &mut figure.place, &mut figure.setting];
        texts.into_iter().for_each(|text| text.push_str(EVIL));
        if figure.metric.is_none() {
            figure.unit.push_str(EVIL);
            figure.candidate.push_str(EVIL);
        }
    }
    let last = header.experiment.published.iter_mut().rfind(|figure| figure.metric.is_some()).unwrap();
    last.not_comparable = EVIL.to_owned();
    for entrant in &mut header.entrants {
        entrant.name.push_str(EVIL);
        entrant.stands_for.push_str(EVIL);
        entrant.commands.push(EVIL.to_owned());
        entrant.unmet.iter_mut().for_each(|reason| reason.push_str(EVIL));
    }
    let fact = ("connections".to_owned(), EVIL.to_owned());
    header.machine.facts.extend([fact]);
    race.notes.push(EVIL.to_owned());
    race.end.as_mut().unwrap().stopped = Some(EVIL.to_owned());
    analyse(&race)
}

/// The characters of a text that a terminal would execute.
fn obeyed(text: &str) -> Vec<char> {
    let is_obeyed = |c: &char| {
        (c.is_control() && *c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(is_obeyed).collect()
}

#[test]
fn a_table_orders_a_terminal_nothing_but_its_own_colours() {
    let summary = hostile();
    let of = |colour| table(&summary, Style { colour, width: 120 });
    let (plain, mut coloured) = (of(false), of(true));
    assert_eq!(obeyed(&plain), []);
    assert!(
        plain.contains("\\u001b[2J\\u001b]0;owned\\u0007\\u009b8m\\u007f\\u202e\\u2066\\u000d"),
        "{plain}"
    );
    for ink in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"] {
        coloured = coloured.replace(ink, "");
    }
    assert_eq!(obeyed(&coloured), []);
    assert_eq!(coloured, plain);
    // A line from the record must not look like one of ours.
    assert!(!plain.lines().any(|line| line.starts_with("Verdict: forged")), "{plain}");
}

#[test]
fn json_and_page_have_the_texts_escaped() {
    let summary = hostile();
    let text = json(&summary);
    assert_eq!(obeyed(&text), []);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["notes"].as_array().unwrap().iter().filter(|note| *note == EVIL).count(), 1);
    assert_eq!(obeyed(&html::page(&summary)), []);
}
