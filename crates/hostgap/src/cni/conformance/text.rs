//! The result as text: a line for each case, then each failure with all that is known of it.

use ::conformance::{Case, Conformance, Fault, Outcome, Report, Subject};

/// The column in which titles begin.
const NAME: usize = 24;

/// The cases with their sentences.
pub(super) fn list(cases: &[&Case]) -> String {
    let entry = |case: &&Case| {
        format!(
            "{:<NAME$} {}\n{:<NAME$} {}, {}, since {}: {}\n",
            case.id,
            case.title,
            "",
            case.section,
            case.demand.word(),
            case.since,
            case.sentence
        )
    };
    cases.iter().map(entry).collect()
}

pub(super) fn conformance(subject: &Subject, found: &Conformance) -> String {
    let mut text = format!("{}, {}\n\n", subject.program.display(), spoken(found));
    found.reports.iter().for_each(|report| text += &line(report));
    for report in &found.reports {
        if let Outcome::Failed(fault) = &report.outcome {
            text += &failure(report.case, fault);
        }
    }
    text + &format!("\n{}\n", summary(found))
}

fn spoken(found: &Conformance) -> String {
    match found.supported.as_slice() {
        [] => format!("which does not say which versions it speaks; {} was tried", found.version),
        versions => format!("CNI {}; cases speak {}", versions.join(", "), found.version),
    }
}

fn line(report: &Report) -> String {
    let (case, outcome) = (report.case, word(&report.outcome));
    let mut line = format!("{outcome:<8} {:<NAME$} {}\n", case.id, case.title);
    if let Outcome::NotApplicable { reason } | Outcome::Undecided { reason } = &report.outcome {
        line += &format!("{:<8} {:<NAME$} {reason}\n", "", "");
    }
    line
}

/// The first word of a case's line. Failures are in capitals, so that they are seen.
pub(super) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::NotApplicable { .. } => "n/a",
        Outcome::Undecided { .. } => "unknown",
    }
}

/// All that is known of a failure.
pub(super) fn failure(case: &Case, fault: &Fault) -> String {
    let mut text = format!("\n{} ({}, {})\n", case.id, case.section, case.demand.word());
    text += &format!("  says     {}\n  found    {}\n", case.sentence, fault.why);
    if let Some(exchange) = &fault.exchange {
        let variables: Vec<String> =
            exchange.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text += &format!("  sent     {}\n           {}\n", variables.join(" "), exchange.input.trim());
        text += &format!("  came     {}\n", exchange.ended);
        for (name, printed) in [("stdout", &exchange.stdout), ("stderr", &exchange.stderr)] {
            let mut lines = printed.trim().lines();
            text += &format!("  {name:<8} {}\n", lines.next().unwrap_or("(nothing)"));
            lines.for_each(|line| text += &format!("           {line}\n"));
        }
    }
    let script = fault.by_hand.lines().map(|line| format!("    {line}\n")).collect::<String>();
    text + "  by hand, as root:\n" + &script
}

fn summary(found: &Conformance) -> String {
    let count = |wanted: fn(&Report) -> bool| found.reports.iter().filter(|report| wanted(report)).count();
    let must = |report: &Report| report.case.demand == ::conformance::Demand::Must;
    let failed = count(|report| matches!(report.outcome, Outcome::Failed(_)));
    let failed_must =
        found.reports.iter().filter(|one| must(one) && matches!(one.outcome, Outcome::Failed(_))).count();
    let mut text = format!(
        "{} passed, {failed} failed ({failed_must} must, {} should), {} do not apply",
        count(|report| report.outcome == Outcome::Passed),
        failed - failed_must,
        count(|report| matches!(report.outcome, Outcome::NotApplicable { .. })),
    );
    match count(|report| matches!(report.outcome, Outcome::Undecided { .. })) {
        0 => {}
        undecided => text += &format!(", {undecided} could not be judged here"),
    }
    text
}
