//! A diagnosis as text.

use std::fmt::Write;

use doctor::{Check, Diagnosis, Finding, Severity, Snapshot};

/// Lines have at most so many columns.
const COLUMNS: usize = 100;
/// The column in which the text of a line begins, after its label.
const INDENT: usize = 10;

pub(super) fn diagnosis(diagnosis: &Diagnosis, after: &Snapshot) -> String {
    let of = |severity| diagnosis.findings.iter().filter(move |finding| finding.seen.severity == severity);
    let (warnings, informations) = (of(Severity::Warning).count(), of(Severity::Information).count());
    let mut text = format!(
        "Linux {}, {}, {}, {:.1} s: {}, {} worth knowing\n",
        diagnosis.kernel,
        counted(after.stat.cpus.len(), "CPU"),
        counted(after.devices.len(), "link"),
        diagnosis.seconds,
        match warnings {
            0 if !diagnosis.blind.is_empty() => "not fully judged".to_owned(),
            0 => "no warning".to_owned(),
            some => counted(some, "warning"),
        },
        informations
    );
    if !diagnosis.blind.is_empty() {
        text += "\nNot judged\n";
        diagnosis.blind.iter().for_each(|blind| text += &labelled("", blind));
    }
    of(Severity::Warning).for_each(|warning| text += &finding(warning));
    if informations > 0 {
        text += "\nWorth knowing\n";
        of(Severity::Information).for_each(|information| text += &finding(information));
    }
    if !diagnosis.unseen.is_empty() {
        text += "\nNot seen\n";
        diagnosis.unseen.iter().for_each(|unseen| text += &labelled("", unseen));
    }
    text
}

pub(super) fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn finding(finding: &Finding) -> String {
    let (check, seen) = (finding.check, &finding.seen);
    let subject = if seen.subject.is_empty() { String::new() } else { format!(" ({})", seen.subject) };
    let mut text = format!("\n{}", labelled(check.code, &format!("{}{subject}", check.title)));
    for (at, evidence) in seen.evidence.iter().enumerate() {
        let label = if at == 0 { "  saw" } else { "" };
        text += &labelled(label, &format!("{} [{}]", evidence.saw, evidence.read_from));
    }
    if finding.is_warning() {
        text += &labelled("  why", check.why);
    }
    if !finding.because_of.is_empty() {
        text += &labelled("  after", &format!("probably a consequence of {}", finding.because_of.join(", ")));
    }
    text += &labelled("  do", &finding.remedy());
    text + &labelled("  verify", check.verify)
}

pub(super) fn check(check: &Check) -> String {
    let mut text = labelled(check.code, check.title);
    text += &labelled("  why", check.why);
    text += &labelled("  do", check.remedy);
    if !check.knobs.is_empty() {
        text += &labelled("  knobs", &check.knobs.join(", "));
    }
    text += &labelled("  verify", check.verify);
    if !check.follows.is_empty() {
        text += &labelled("  after", &check.follows.join(", "));
    }
    text + &labelled("  source", check.source)
}

/// A label and a text, in lines of at most 100 columns.
pub(super) fn labelled(label: &str, text: &str) -> String {
    let mut out = format!("{label:<INDENT$}");
    let mut column = INDENT;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > INDENT && column + 1 + length > COLUMNS {
            write!(out, "\n{:INDENT$}", "").expect("a String takes everything");
            column = INDENT;
        }
        if column > INDENT {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_texts_stand_under_each_other() {
        let text = labelled("  why", &"wait ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() <= COLUMNS));
        assert!(lines[0].starts_with("  why     wait") && lines[1].starts_with("          wait"));
    }
}
