//! A proposal as text and as commands.

use std::fmt::Write;

use ::tune::{Disrupts, Setting};
use host::{Change, Proposal, Skipped};

/// The proposal as text.
pub(super) fn text(proposal: &Proposal) -> String {
    let mut text = String::new();
    let place =
        proposal.host.netns.as_ref().map_or("this host".to_owned(), |name| format!("namespace {name}"));
    let device = proposal.host.device.as_ref().map_or(String::new(), |device| {
        let driver = device.driver.as_ref().map(|driver| format!(" ({driver})")).unwrap_or_default();
        format!(", link {}{driver}", device.name)
    });
    let count = proposal.changes.len();
    if count == 0 {
        let _ = writeln!(text, "Nothing to change on {place}{device}.");
    } else {
        let settings = if count == 1 { "setting" } else { "settings" };
        let _ = writeln!(text, "{count} {settings} to change on {place}{device}, in this order:\n");
    }
    proposal.changes.iter().for_each(|change| text += &one(change));
    for wish in &proposal.later {
        let _ = writeln!(text, "Then, for the new queues: {}", assigned(&wish.wanted.setting));
    }
    if !proposal.already.is_empty() {
        let list: Vec<String> = proposal.already.iter().map(|wanted| assigned(&wanted.setting)).collect();
        let _ = writeln!(text, "Already set: {}", list.join(", "));
    }
    for Skipped { knob, value, why } in &proposal.skipped {
        let _ = writeln!(text, "Left out: {knob} = {value}: {why}");
    }
    for conflict in &proposal.conflicts {
        let _ =
            writeln!(text, "Conflict: {} ({}) {}", conflict.who, conflict.knobs.join(", "), conflict.what);
    }
    text
}

fn one(Change { wanted, steps, held }: &Change) -> String {
    let knob = wanted.setting.knob;
    let mut text = String::new();
    let same =
        steps.iter().all(|(_, preview)| preview.old == steps[0].1.old && preview.new == steps[0].1.new);
    if let Some((old, new)) = held {
        let _ = writeln!(text, "  {}  {old} → {new}", knob.id);
    } else if same {
        let times = if steps.len() > 1 { format!("  ({} times)", steps.len()) } else { String::new() };
        let _ = writeln!(text, "  {}  {} → {}{times}", knob.id, steps[0].1.old, steps[0].1.new);
    } else {
        let _ = writeln!(text, "  {}", knob.id);
        for (placed, preview) in steps {
            // A command of several lines is for `show-commands`.
            let command = placed.commands().join("; ");
            let command = if command.contains('\n') { "" } else { command.as_str() };
            let line = format!("      {} → {}  {command}", preview.old, preview.new);
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let disrupts = match knob.disrupts {
        Disrupts::Nothing => String::new(),
        some => format!(", interrupts {some}"),
    };
    let _ = writeln!(text, "      takes effect {}, risk {}{disrupts}", knob.reaches, knob.risk);
    let _ = writeln!(text, "      {}\n", wanted.why);
    text
}

/// Commands that do the same by hand, with comments for settings that no command can make.
pub(super) fn commands(proposal: &Proposal) -> Vec<String> {
    let mut lines = proposal.plan().commands();
    for change in proposal.changes.iter().filter(|change| change.held.is_some()) {
        lines.push(format!("# {}: by a process that holds it", assigned(&change.wanted.setting)));
    }
    for wish in &proposal.later {
        lines.push(format!("# {}: for the new queues", assigned(&wish.wanted.setting)));
    }
    for Skipped { knob, value, why } in &proposal.skipped {
        lines.push(format!("# {knob} = {value}: left out: {why}"));
    }
    lines
}

fn assigned(setting: &Setting) -> String {
    format!("{} = {}", setting.knob.id, setting.value)
}
