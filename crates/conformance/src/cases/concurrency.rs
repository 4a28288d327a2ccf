//! Several calls at once, and calls that are cut short.

use std::collections::BTreeSet;
use std::time::Duration;

use cni::{Command, Version};

use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

const LIFECYCLE: &str = "section 3, Lifecycle & Ordering";

pub(super) const CASES: &[Case] = &[
    Case {
        id: "parallel-add",
        title: "16 ADDs at once give 16 containers addresses of their own, and 16 DELs take all back",
        section: LIFECYCLE,
        sentence: "Plugins must handle being executed concurrently across different containers. If necessary, they must implement locking on shared resources (e.g. IPAM databases).",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: parallel,
    },
    Case {
        id: "killed-add",
        title: "an ADD that is killed anywhere is taken back by DEL, and the next one works",
        section: LIFECYCLE,
        sentence: "The container runtime must ensure that _add_ is eventually followed by a corresponding _delete_.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: killed,
    },
];

const CONTAINERS: usize = 16;
/// At how many moments of an ADD it is killed.
const KILLS: u32 = 6;

fn parallel(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let containers = (0..CONTAINERS).map(|number| scene.container(&format!("c{number}")));
    let containers: Vec<Container> = containers.collect::<Judged<_>>()?;
    let added = at_once(&containers, |container| Added::of(scene.ask_add(container)?.together().send()?))?;
    let mut seen = BTreeSet::new();
    for (container, added) in containers.iter().zip(&added) {
        let addresses = added.addresses_in(container)?;
        if let Some(address) = addresses.iter().find(|address| !seen.insert(address.addr())) {
            return Err(added.answer.fault(format!("{} is another container's already", address.addr())));
        }
        if container.addresses(IFNAME)? != addresses.into_iter().collect() {
            return Err(added.answer.fault(format!("the addresses of {IFNAME} are not those of the result")));
        }
    }
    let pairs: Vec<(&Container, &Added)> = containers.iter().zip(&added).collect();
    at_once(&pairs, |(container, added)| {
        scene.ask(Command::Del, container).previous(added).together().send()?.succeeded()
    })?;
    scene.node()?.must_be(&before, "the node", "after all DELs")
}

fn at_once<S: Sync, T: Send>(subjects: &[S], work: impl Fn(&S) -> Judged<T> + Sync) -> Judged<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = subjects.iter().map(|subject| scope.spawn(|| work(subject))).collect();
        threads.into_iter().map(|thread| thread.join().expect("cases do not panic")).collect()
    })
}

/// What is left in the container ends with its namespace, which is for the runtime.
fn killed(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let container = scene.container("a")?;
    // How long it takes decides when it is killed, and not what must come of it.
    let (answer, whole) = scene.ask_add(&container)?.timed()?;
    let added = Added::of(answer)?;
    scene.deleted(&container, &added)?;
    for step in 0..KILLS {
        let after = Duration::from_micros(
            u64::try_from(whole.as_micros()).unwrap_or(u64::MAX) * u64::from(step) / u64::from(KILLS),
        );
        scene.ask_add(&container)?.kill_after(after)?;
        scene.ask(Command::Del, &container).send()?.succeeded()?;
        let when = format!("after an ADD that was killed after {after:?}, and its DEL");
        scene.node()?.must_be(&before, "the node", &when)?;
    }
    let added = scene.added(&container)?;
    if container.link(IFNAME)?.is_none() {
        return Err(Stop::Failed {
            why: format!("{IFNAME} is not in the container"),
            call: Some(added.answer.number),
        });
    }
    scene.deleted(&container, &added)?;
    scene.node()?.must_be(&before, "the node", "after DEL")
}
