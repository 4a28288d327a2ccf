//! The time of the plugin's ADD and DEL, beside that of the CNI project's plugins and of the kernel alone.
//!
//! `cargo bench -p hostgap --bench plugin`; three minutes, as root. The CNI project's plugins are looked for in
//! `/usr/lib/cni` and `/opt/cni/bin`, or in `CNI_PATH`: `cargo xtask plugins` builds those of a fixed version and
//! prints where they are. `HOSTGAP_PLUGIN` names another `hostgap-cni` than that which cargo builds for this: a release
//! has one without shared libraries, which begins sooner. Everything lies in a mount namespace with directories of its
//! own, and ends with it. Nothing is asserted: the figures are for readers.
//!
//! The least that ADD can take is the start of a program and a pair of links, and the least for DEL the end of that
//! pair: the first row does only this. All rows take turns, in an order that is drawn for each turn. The second row of
//! `hostgap-cni` is the same as the first: what differs between them is noise.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

mod contender;
mod scene;

use std::error::Error;
use std::thread;
use std::time::Duration;

use contender::{Contender, Verb};
use stats::Random;

type Failure = Box<dyn Error + Send + Sync>;

/// ADDs and DELs of each contender, one after the other.
const TURNS: usize = 40;
/// Namespaces: that many ADDs at once, too.
const PODS: usize = 200;
/// Calls of STATUS while all namespaces are attached, in each round.
const STATUSES: usize = 20;
/// How often they all come at once.
const ROUNDS: usize = 3;

fn main() -> Result<(), Failure> {
    // Cargo runs this program with the tests too, and then without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    if !scene::is_inside() {
        return scene::enter(PODS);
    }
    let dir = tempfile::tempdir()?;
    let contenders = contender::all(dir.path())?;
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    let mut pods = (0..PODS).cycle();
    // What one leaves to the kernel to do later, the next one feels: none has always the same before it.
    let mut random = Random::from_seed(1);
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..TURNS {
        random.shuffle(&mut order);
        for which in &order {
            let (contender, figures) = (&contenders[*which], &mut figures[*which]);
            let pod = pods.next().expect("they begin again");
            figures.add.push(contender.time(Verb::Add, pod)?);
            figures.del.push(contender.time(Verb::Del, pod)?);
        }
    }
    for _ in 0..ROUNDS {
        random.shuffle(&mut order);
        for which in &order {
            let contender = &contenders[*which];
            figures[*which].at_once.extend(at_once(contender, Verb::Add)?);
            for _ in (0..STATUSES).filter(|_| contender.has_status()) {
                figures[*which].status.push(contender.time(Verb::Status, 0)?);
            }
            at_once(contender, Verb::Del)?;
        }
    }
    print(&contenders, &figures);
    Ok(())
}

/// The times of one contender.
#[derive(Default)]
struct Figures {
    add: Vec<Duration>,
    del: Vec<Duration>,
    /// Of ADDs that all began together.
    at_once: Vec<Duration>,
    /// With all namespaces attached.
    status: Vec<Duration>,
}

/// Calls for all namespaces at the same time.
fn at_once(contender: &Contender, verb: Verb) -> Result<Vec<Duration>, Failure> {
    thread::scope(|scope| {
        let calls: Vec<_> = (0..PODS).map(|pod| scope.spawn(move || contender.time(verb, pod))).collect();
        calls.into_iter().map(|call| call.join().expect("a call is an error or a time")).collect()
    })
}

fn print(contenders: &[Contender], figures: &[Figures]) {
    println!("medians of {TURNS} in ms, with the middle half; × is how many times that of the kernel alone");
    println!(
        "{:<34} {:>20} {:>5}   {:>20} {:>5}   {:>20}   p99 of {PODS} ADD at once",
        "", "ADD", "×", "DEL", "×", "STATUS"
    );
    let floor = &figures[0];
    for (contender, of) in contenders.iter().zip(figures) {
        let times = |all: &[Duration]| {
            let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(all, share));
            format!("{middle:.2} ({low:.2}–{high:.2})")
        };
        let ratio = |own: &[Duration], least: &[Duration]| quantile(own, 0.5) / quantile(least, 0.5);
        println!(
            "{:<34} {:>20} {:>5.2}   {:>20} {:>5.2}   {:>20}   {:>8.0} {:>5.2}",
            contender.name,
            times(&of.add),
            ratio(&of.add, &floor.add),
            times(&of.del),
            ratio(&of.del, &floor.del),
            if of.status.is_empty() { "–".to_owned() } else { times(&of.status) },
            quantile(&of.at_once, 0.99),
            quantile(&of.at_once, 0.99) / quantile(&floor.at_once, 0.99),
        );
    }
}

/// A quantile of the times, in milliseconds.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "few times"
    )]
    let rank = (share * (sorted.len() - 1) as f64).round() as usize;
    sorted[rank].as_secs_f64() * 1e3
}
