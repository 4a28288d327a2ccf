//! A server that freezes: what arithmetic says, and what the generator sees.

use crate::Failure;
use crate::place::Place;
use load::proof;

/// The same scenes as `hostgap load --self-test`, which are the generator's truth and not its speed.
pub(crate) fn compare(_place: &Place) -> Result<(), Failure> {
    println!("\nfigures that follow by arithmetic from what the server does");
    proof::prove(|scene| {
        println!("  {}", scene[0].scene);
        for proof in scene {
            let error = (proof.seen / proof.truth - 1.0) * 100.0;
            let error = if proof.truth > 0.0 { format!("{error:+.2} %") } else { String::new() };
            println!(
                "    {:<26}{:>12.3} {:<3} seen {:>12.3}  {error}",
                proof.figure, proof.truth, proof.unit, proof.seen
            );
        }
    })?;
    Ok(())
}
