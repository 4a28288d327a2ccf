//! The time of a reservation by the number of reserved addresses, up to a /16 that is full but for one.
//!
//! `cargo bench -p ipam`; some seconds. The directory is below `TMPDIR`. Nothing is asserted: the figures are for
//! readers. A reservation reads the file of every address, since only that shows what the key has already, so its time
//! grows with their number; what counts is that it stays far below a second.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::error::Error;
use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ipam::{Key, RangeSets, Store};

const RANGES: &str = r#"[[{"subnet":"10.1.0.0/16"}]]"#;
const RESERVED: [u32; 5] = [0, 110, 1_000, 10_000, 65_532];
const REPETITIONS: u32 = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let store = Store::open(root.path(), "n")?.with_quarantine(Duration::ZERO);
    fs::create_dir(store.path())?;
    let sets: RangeSets = serde_json::from_str(RANGES)?;
    let key = Key::new(&"f".repeat(64), "eth0")?;
    println!("reserved  reserve   release   left      (medians)");
    let mut made = 0;
    for reserved in RESERVED {
        for index in made..reserved {
            let address = Ipv4Addr::from_bits(0x0a01_0002 + index);
            fs::write(store.path().join(address.to_string()), format!("{index:064x}\r\neth0"))?;
        }
        made = reserved;
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..REPETITIONS {
            times[0].push(timed(|| store.reserve(&key, &sets, &[]))?);
            times[1].push(timed(|| store.release(&key))?);
            times[2].push(timed(|| store.left(&sets))?);
        }
        let [reserve, release, left] = times.map(median);
        println!("{reserved:>8}  {reserve:<8.1?}  {release:<8.1?}  {left:<8.1?}");
    }
    Ok(())
}

fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<Duration, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
