//! Cases are put to a plugin, several at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use cni::Version;
use serde_json::Value;

use crate::ask::ask_version;
use crate::case::Kind;
use crate::outcome::{Fault, Stop};
use crate::scene::{Scene, view};
use crate::{Case, ConformanceError, Outcome, Subject};

/// How cases are run.
#[derive(Debug)]
pub struct Options<'a> {
    /// How many at a time, at least one.
    pub jobs: usize,
    /// When it becomes true, no case is begun any more.
    pub stop: &'a AtomicBool,
}

/// The outcomes of all cases that were run, and how the plugin was asked.
#[derive(Debug)]
pub struct Conformance {
    /// The versions that the plugin says it speaks; empty if it does not say.
    pub supported: Vec<String>,
    /// The version in which it was spoken to: the newest that both know.
    pub version: Version,
    /// One for each case that was run, in the order in which they were given.
    pub reports: Vec<Report>,
}

/// A case and its outcome.
#[derive(Debug)]
pub struct Report {
    /// The case that was run.
    pub case: &'static Case,
    /// What became of it.
    pub outcome: Outcome,
}

/// The version that is tried with a plugin that does not say which it speaks.
const FALLBACK: Version = Version::V1_0_0;

/// Puts a plugin to cases. `emit` is called for each when it has ended, whatever their order.
///
/// # Errors
/// Namespaces cannot be made, for lack of root for instance.
pub fn run(
    subject: &Subject,
    cases: &[&'static Case],
    options: &Options<'_>,
    mut emit: impl FnMut(&Report),
) -> Result<Conformance, ConformanceError> {
    let supported = on_stage(|| supported(subject))?;
    let version =
        Version::ALL.into_iter().rev().find(|known| supported.iter().any(|one| one == known.as_str()));
    let version = version.unwrap_or(FALLBACK);
    let next = AtomicUsize::new(0);
    let (say, ended) = mpsc::channel();
    let mut reports = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (say, next, supported) = (say.clone(), &next, &supported);
            scope.spawn(move || {
                while !options.stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    let outcome = outcome(subject, case, version, supported);
                    // The receiver is gone if its thread has panicked.
                    let _ = say.send((index, Report { case, outcome }));
                }
            });
        }
        drop(say);
        for (index, report) in ended {
            emit(&report);
            reports.push((index, report));
        }
    });
    reports.sort_by_key(|(index, _)| *index);
    Ok(Conformance { supported, version, reports: reports.into_iter().map(|(_, report)| report).collect() })
}

/// Runs the closure on a thread with a view of its own, which ends with it.
fn on_stage<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, linux::Error> {
    let staged = || view().enter().map(|()| work());
    std::thread::scope(|scope| scope.spawn(staged).join().expect("cases do not panic"))
}

/// The versions that a plugin says it speaks.
fn supported(subject: &Subject) -> Vec<String> {
    let answer =
        Scene::new(subject, FALLBACK, &[]).and_then(|scene| ask_version(&scene, FALLBACK).send()?.result());
    let listed = answer.ok().and_then(|answer| answer.get("supportedVersions")?.as_array().cloned());
    listed.unwrap_or_default().iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn outcome(subject: &Subject, case: &Case, version: Version, supported: &[String]) -> Outcome {
    if version < case.since {
        let reason = format!("it speaks {version} at most, and this came with {}", case.since);
        return Outcome::NotApplicable { reason };
    }
    if case.kind == Kind::Interface && !subject.before.is_empty() {
        let reason = "it is called behind another plugin, which creates the interface".to_owned();
        return Outcome::NotApplicable { reason };
    }
    let staged = on_stage(|| match Scene::new(subject, version, supported) {
        Ok(scene) => judge(case, &scene),
        Err(stop) => outcome_of(stop, None),
    });
    staged.unwrap_or_else(|error| Outcome::Undecided { reason: error.to_string() })
}

fn judge(case: &Case, scene: &Scene<'_>) -> Outcome {
    match (case.judge)(scene) {
        Ok(()) => Outcome::Passed,
        Err(stop) => outcome_of(stop, Some(scene)),
    }
}

fn outcome_of(stop: Stop, scene: Option<&Scene<'_>>) -> Outcome {
    match (stop, scene) {
        (Stop::Failed { why, call }, Some(scene)) => {
            let transcript = scene.transcript();
            let exchange = call.and_then(|number| transcript.exchange(number)).cloned();
            Outcome::Failed(Box::new(Fault { why, exchange, by_hand: transcript.script() }))
        }
        (Stop::NotApplicable(reason), _) => Outcome::NotApplicable { reason },
        (Stop::Failed { why: reason, .. } | Stop::Undecided(reason), _) => Outcome::Undecided { reason },
    }
}
