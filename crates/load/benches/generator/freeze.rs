//! A server that freezes: the latency that follows by arithmetic, and the one that the generator measures.

use load::proof;

use crate::Failure;

/// The same scenes as `hostgap load --self-test`, which are the generator's truth and not its speed.
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
