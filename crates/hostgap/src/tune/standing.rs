//! `hostgap tune status`, `confirm`, `rollback`: the active tuning.

use std::path::Path;
use std::process::ExitCode;

use host::{Description, JournalStatus, KeptFiles, StepStatus};
use plan::{
    EndedTransaction, Entry, Kernel, LockedStore, OpenTransaction, Phase, StepState, Store, TransactionError,
    Undone, Why,
};
use serde_json::json;

use super::apply;
use crate::exit::{self, BadInput};
use crate::output;

pub(super) fn status(store: &Store, as_json: bool) -> anyhow::Result<ExitCode> {
    let standing = store.standing()?;
    let seen = JournalStatus::of(store, standing.as_ref())?;
    let description = standing.as_ref().map(Description::read).transpose()?;
    let standing = standing.as_ref().zip(description.as_ref());
    let last = store.last();
    if as_json {
        let standing = standing.map(|(standing, description)| object(store, standing, description, &seen));
        output::result(json!({ "schema": 1, "standing": standing, "last": last, "doubt": seen.doubt }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match standing {
        Some((standing, description)) => print(store, standing, description, &seen)?,
        None if seen.doubt.is_some() => output::result(format_args!(
            "What is set is unknown: {} exists, but the file that describes its tuning is missing. `hostgap tune \
             rollback` undoes the steps in that journal.",
            store.journal_path().display()
        ))?,
        None => output::result("No tuning is active.")?,
    }
    let is_news = |last: &EndedTransaction| match standing {
        Some((standing, _)) => last.addition && last.id == standing.id,
        None => true,
    };
    if let Some(last) = last.filter(is_news) {
        output::result(ended(&last))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn confirm(store: &Store, same_login: bool) -> anyhow::Result<ExitCode> {
    let held = hold(store, "confirmed")?;
    if let Some(standing) = store.standing()?.filter(|_| !same_login)
        && let Some(left_ns) = standing.left_ns()
        && Description::read(&standing)?.is_old_login()
    {
        let text = format!(
            "this login is older than tuning {} and proves nothing: confirm from a new one within {} s, \
             or, from a console, with --same-login",
            standing.id,
            left_ns / 1_000_000_000
        );
        return Err(BadInput(text).into());
    }
    match held.confirm() {
        Ok(standing) => {
            output::result(format_args!(
                "Tuning {} stays until `hostgap tune rollback` or a restart; `hostgap tune keep` makes it survive that.",
                standing.id
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(TransactionError::Stands { id, phase: Phase::Confirmed }) => {
            output::result(format_args!("Tuning {id} is confirmed already."))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if let Some(last) = store.last() {
                output::aside(ended(&last));
            }
            Err(error.into())
        }
    }
}

pub(super) fn rollback(store: &Store, discard: bool) -> anyhow::Result<ExitCode> {
    let stood = store.standing().ok().flatten();
    let held = hold(store, "rolled back")?;
    if discard {
        held.forget()?;
        output::result("Forgotten; what was set stays as it is.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let back = match held.take_back(&mut Kernel::new()?, Why::Asked) {
        Ok(back) => back,
        Err(TransactionError::Journal(error)) => {
            prove(store)?;
            return Err(TransactionError::Journal(error).into());
        }
        Err(error @ TransactionError::Nothing { .. }) => {
            let Some(last) = stood.and_then(|stood| taken_back(store, &stood)) else {
                return Err(error.into());
            };
            output::after_work(output::result(ended(&last)))?;
            return Ok(if last.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) });
        }
        Err(error) => return Err(error.into()),
    };
    if let (true, Some(last)) = (back.rebooted, store.last()) {
        output::result(ended(&last))?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = |is: fn(&Undone) -> bool| back.steps.iter().filter(|(_, undone)| is(undone)).count();
    let restored = count(|undone| matches!(undone, Undone::Restored | Undone::AlreadySo));
    let left = count(|undone| matches!(undone, Undone::ChangedByOther { .. }));
    let gone = count(|undone| matches!(undone, Undone::Gone | Undone::Rebooted));
    apply::print_failures(&back);
    let steps = if restored == 1 { "step" } else { "steps" };
    let mut text = format!("{restored} {steps} undone");
    if gone > 0 {
        text += &format!(", {gone} already gone");
    }
    if left > 0 {
        text += &format!(", {left} left alone because they were changed since");
    }
    output::after_work(output::result(format_args!("{text}.")))?;
    if KeptFiles::below(Path::new("/")).exist() {
        output::aside(
            "`keep` applies the settings again at the next start; `hostgap tune keep --forget` ends that.",
        );
    }
    Ok(match (back.is_whole, left) {
        (false, _) => ExitCode::from(exit::FAILURE),
        (true, 0) if back.doubt.is_none() => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(exit::INVALID),
    })
}

/// The store, if there is one. Commands that end a tuning do not make its directory.
fn hold(store: &Store, what: &'static str) -> Result<LockedStore, TransactionError> {
    if store.path().exists() { store.hold() } else { Err(TransactionError::Nothing { what }) }
}

/// How the tuning ended, if its watcher, which held the store until now, has just undone it.
fn taken_back(store: &Store, stood: &OpenTransaction) -> Option<EndedTransaction> {
    store.last().filter(|last| last.id == stood.id && !last.addition)
}

fn print(
    store: &Store,
    standing: &OpenTransaction,
    description: &Description,
    seen: &JournalStatus,
) -> anyhow::Result<()> {
    if seen.is_restarted {
        let text = "Tuning {} was made before the machine was restarted, which has reset all of it.";
        output::result(text.replace("{}", &standing.id))?;
        return Ok(());
    }
    let place = description.netns.as_ref().map_or(String::new(), |name| format!(" in namespace {name}"));
    let how = match (standing.phase, standing.left_ns()) {
        (Phase::Unconfirmed { .. }, Some(left)) => format!("unconfirmed, {} s left", left / 1_000_000_000),
        (phase, _) => phase.to_string(),
    };
    output::result(format_args!("Tuning {}{place}: {how}.", standing.id))?;
    match standing.phase {
        Phase::Applying | Phase::Unconfirmed { .. } if !store.is_watched() => {
            output::result("NOT WATCHED: its watcher has died. `hostgap tune rollback` undoes it.")?;
        }
        Phase::Extending { .. } if !store.is_watched() => output::result(
            "NOT WATCHED while something is being added: the next `hostgap tune apply` undoes that, and \
             `hostgap tune rollback` all of it.",
        )?,
        Phase::Applying | Phase::Unconfirmed { .. } | Phase::Confirmed | Phase::Extending { .. } => {}
    }
    if let Some(limit_us) = standing.cpu_latency_us {
        let held = if store.is_watched() { "is held" } else { "is NO LONGER held: the watcher has died" };
        output::result(format_args!("  a limit of {limit_us} µs on the latency of CPUs {held}"))?;
    }
    for StepStatus { placed, look, .. } in &seen.steps {
        let what = placed.commands().join("; ");
        match look {
            Ok(StepState::So) => output::result(format_args!("  {what}"))?,
            Ok(StepState::Otherwise { found }) => {
                output::result(format_args!("  {what}\n    is {found} now: it was changed since"))?;
            }
            Ok(StepState::Absent) => {
                output::result(format_args!("  {what}\n    is not there now: it was removed since"))?;
            }
            Err(why) => output::result(format_args!("  {what}\n    cannot be read now: {why}"))?,
        }
    }
    for (line, why) in &seen.damaged {
        output::result(format_args!("  the journal's line {line} is damaged: {why}"))?;
    }
    if let Some(doubt) = &seen.doubt {
        output::result(format_args!("It is not certain that this is all: {doubt}."))?;
    }
    Ok(())
}

fn object(
    store: &Store,
    standing: &OpenTransaction,
    description: &Description,
    seen: &JournalStatus,
) -> serde_json::Value {
    let steps: Vec<_> = seen
        .steps
        .iter()
        .map(|StepStatus { placed, look, now }| {
            let is_so = *look == Ok(StepState::So);
            json!({ "command": placed.commands().join("\n"), "now": now, "as_set": is_so })
        })
        .collect();
    json!({
        "id": standing.id,
        "phase": standing.phase.to_string(),
        "since_unix_s": standing.since_unix_s,
        "left_s": standing.left_ns().map(|left| left / 1_000_000_000),
        "watched": store.is_watched(),
        "of_this_boot": !seen.is_restarted,
        "cpu_latency_us": standing.cpu_latency_us,
        "netns": description.netns,
        "device": description.device,
        "settings": description.settings,
        "steps": steps,
        "damaged_lines": seen.damaged.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        "doubt": seen.doubt,
    })
}

fn ended(last: &EndedTransaction) -> String {
    // Its name may have been unreadable.
    let name = if last.id.is_empty() { "A tuning".to_owned() } else { format!("Tuning {}", last.id) };
    if last.rebooted {
        return format!("{name} ended with a restart of the machine.");
    }
    let what = if last.addition { "What was being added to it".to_owned() } else { name };
    let mut text = format!("{what} was undone, {}.", last.why);
    if let Some(doubt) = &last.doubt {
        text += &format!(" It is not certain that this was all: {doubt}.");
    }
    for (command, found) in &last.left {
        text += &format!("\n  left alone, changed since: {command}\n    found {found}");
    }
    text
}

/// Prints the readable lines of a damaged journal, so that the old values can be restored by hand.
fn prove(store: &Store) -> anyhow::Result<()> {
    output::aside("The journal is damaged, and undoing half of it could do harm. Its intact lines say:");
    for plan::Salvaged { line, entry } in plan::salvage(&store.journal_path())? {
        match entry {
            Ok(Entry::Intent(intent)) => {
                let before = serde_json::to_string(&intent.before)?;
                let command = intent.placed.commands().join("; ");
                output::aside(format_args!("  line {line}: before {command}\n    the value was {before}"));
            }
            Ok(Entry::Header(_) | Entry::Done { .. } | Entry::Undone { .. }) => {}
            Err(why) => output::aside(format_args!("  line {line} cannot be read: {why}")),
        }
    }
    Ok(())
}
