//! A server that freezes: its latency by arithmetic, and as the generator measures it.

use load::proof;

use crate::Failure;

/// The scenes of `hostgap load --self-test`. They check the generator's accuracy, not its speed.
pub(crate) fn compare() -> Result<(), Failure> {
    println!("\nfigures that follow by arithmetic from what the server does");
    proof::prove(|scene| {
        println!("  {}", scene[0].scene);
        for proof in scene {
            println!(
                "    {:<26}{:>12.3} {:<3} seen {:>12.3}  ({:+.3})",
                proof.figure,
                proof.truth,
                proof.unit,
                proof.seen,
                proof.seen - proof.truth
            );
        }
    })?;
    Ok(())
}
