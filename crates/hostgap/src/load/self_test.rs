//! `hostgap load --self-test`: the generator measures servers whose delays are known.

use std::fmt::Write as _;
use std::process::ExitCode;

use ::load::proof::{self, Proof};
use serde_json::{Value, json};

use crate::{exit, output};

pub(super) fn run(as_json: bool) -> anyhow::Result<ExitCode> {
    output::aside(format_args!(
        "this takes half a minute, with a CPU for the generator and one for the responder"
    ));
    let proofs = proof::prove(|scene| {
        if !as_json {
            // Shows progress scene by scene; the table is printed once, at the end.
            let held = scene.iter().filter(|proof| proof.holds()).count();
            output::aside(format_args!("{}: {held} of {} hold", scene[0].scene, scene.len()));
        }
    })?;
    let text = if as_json { format!("{}\n", json(&proofs)) } else { table(&proofs) };
    output::text(&text)?;
    let holds = proofs.iter().all(Proof::holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) })
}

fn json(proofs: &[Proof]) -> Value {
    let proof_json = |proof: &Proof| {
        json!({
            "scene": proof.scene,
            "figure": proof.figure,
            "truth": proof.truth,
            "seen": proof.seen,
            "tolerance": proof.tolerance,
            "unit": proof.unit,
            "attempt": proof.attempt,
            "holds": proof.holds(),
        })
    };
    json!({
        "schema": 1,
        "holds": proofs.iter().all(Proof::holds),
        "proofs": proofs.iter().map(proof_json).collect::<Vec<_>>(),
    })
}

fn table(proofs: &[Proof]) -> String {
    let mut text = String::new();
    lines(&mut text, proofs).expect("writing to a string does not fail");
    text
}

fn lines(text: &mut String, proofs: &[Proof]) -> std::fmt::Result {
    let mut scene = "";
    for proof in proofs {
        if proof.scene != scene {
            scene = proof.scene;
            let again =
                if proof.attempt > 1 { format!(" (attempt {})", proof.attempt) } else { String::new() };
            writeln!(text, "\n{scene}{again}")?;
            writeln!(text, "  {:<26}{:>14}{:>14}{:>12}", "", "truth", "seen", "tolerance")?;
        }
        let digits = if proof.unit.is_empty() { 0 } else { 3 };
        let figure = |value: f64| format!("{value:.digits$} {}", proof.unit).trim_end().to_owned();
        let (truth, seen, tolerance) = (figure(proof.truth), figure(proof.seen), figure(proof.tolerance));
        let verdict = if proof.holds() { "holds" } else { "DOES NOT HOLD" };
        writeln!(text, "  {:<26}{truth:>14}{seen:>14}{tolerance:>12}  {verdict}", proof.figure)?;
    }
    let held = proofs.iter().filter(|proof| proof.holds()).count();
    writeln!(text, "\n{held} of {} figures match arithmetic.", proofs.len())
}
