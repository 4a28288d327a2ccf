//! `hostgap tune knobs`: the list of knobs.

use std::process::ExitCode;

use ::tune::{Disrupts, Knob, Lives, TABLE};

use crate::output;

/// Prints the knobs whose name has the text in it, or all of them.
pub(super) fn run(name: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    // The kernel's name of a parameter belongs to exactly one knob.
    let exact = name.and_then(::tune::find);
    let is_asked = |knob: &Knob| {
        name.is_none_or(|name| knob.id.contains(name)) || exact.is_some_and(|exact| exact == knob)
    };
    if json {
        let knobs: Vec<_> = TABLE
            .iter()
            .flat_map(|family| family.knobs.iter().map(|knob| (family.title, knob)))
            .filter(|(_, knob)| is_asked(knob))
            .map(|(family, knob)| object(family, knob))
            .collect();
        output::result(serde_json::json!({ "schema": 1, "knobs": knobs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for family in TABLE {
        let mut named = family.knobs.iter().filter(|knob| is_asked(knob)).peekable();
        if named.peek().is_some() {
            output::result(format_args!("{}\n", family.title))?;
        }
        named.try_for_each(|knob| output::result(text(knob)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(knob: &Knob) -> String {
    let mut text = format!("  {}\n{}", knob.id, paragraph(knob.why));
    if let Lives::Nowhere { gone, instead } = knob.lives {
        return format!("{text}{}{}", paragraph(&format!("Today: {gone}; {instead}.")), source(knob));
    }
    text += &format!("      takes   {}, for example {}\n", knob.kind, knob.example);
    text += &format!("      set on  {}, takes effect {}, risk {}\n", knob.lives, knob.reaches, knob.risk);
    if let Some(races) = knob.races() {
        text += &format!("      races   {races}\n");
    }
    if knob.disrupts != Disrupts::Nothing {
        text += &format!("      setting it interrupts {}\n", knob.disrupts);
    }
    text += &format!("      default {}\n", knob.default);
    if let Some(since) = knob.since {
        text += &format!("      kernel  from {since}\n");
    }
    if let Some(until) = knob.until {
        text += &format!("      kernel  no effect from {until}\n");
    }
    text + &source(knob)
}

fn source(knob: &Knob) -> String {
    format!("      source  {}\n", knob.source)
}

/// Lines of at most 100 columns.
fn paragraph(text: &str) -> String {
    const INDENT: &str = "      ";
    let mut lines = vec![INDENT.to_owned()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if last.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("{INDENT}{word}"));
        } else {
            *last += if last.len() == INDENT.len() { "" } else { " " };
            *last += word;
        }
    }
    lines.join("\n") + "\n"
}

/// A removed knob has no scope, but an `instead`.
fn object(family: &str, knob: &Knob) -> serde_json::Value {
    let (obsolete, instead) = match knob.lives {
        Lives::Nowhere { gone, instead } => (Some(gone), Some(instead)),
        _ => (None, None),
    };
    let value = |(since, value): &(::tune::Since, &str)| serde_json::json!({ "since": since.to_string(), "value": value });
    let defaults: Vec<_> = knob.default.values().iter().map(value).collect();
    serde_json::json!({
        "id": knob.id,
        "family": family,
        "scope": knob.scope().map(|scope| scope.to_string()),
        "lives": knob.scope().map(|_| knob.lives.to_string()),
        "takes": knob.kind.to_string(),
        "example": knob.example,
        "since": knob.since.map(|since| since.to_string()),
        "no_effect_since": knob.until.map(|until| until.to_string()),
        "reaches": knob.reaches.to_string(),
        "disrupts": knob.disrupts.to_string(),
        "risk": knob.risk.to_string(),
        "default": knob.scope().map(|_| knob.default.to_string()),
        "defaults": defaults,
        "why": knob.why,
        "source": knob.source,
        "obsolete": obsolete,
        "instead": instead,
    })
}
