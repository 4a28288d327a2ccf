//! One side is a pod and the other a node's own network: the data paths that support it work in both
//! directions and both families, and their packets take the path.

use std::net::SocketAddr;
use std::time::Duration;

use lab::{BuiltTopology, Home, Shape, Topology};
use load::{Run, Schedule, Wait};
use record::{Candidate, Side};
use testkit::run;

use crate::path::{Ground, changed};
use crate::paths::runnable;
use crate::standing::{left, shape, staffing};

/// The sides of a data path that can be alone in a container.
pub(crate) fn sides(path: &datapath::DataPath) -> Vec<Side> {
    let parts = [(Side::Client, datapath::SocketRole::Client), (Side::Server, datapath::SocketRole::Server)];
    parts.into_iter().filter(|(_, part)| path.alone(*part).is_ok()).map(|(side, _)| side).collect()
}

#[test]
fn each_answers_over_both_families_and_goes() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    for path in runnable() {
        for (in_container, ipv6) in sides(path).into_iter().flat_map(|side| [(side, false), (side, true)]) {
            let is_called = path.attach.refuses_callers(lab::family(ipv6)).is_none();
            if in_container == Side::Server && !is_called {
                continue;
            }
            let shape = Shape { in_container, ..shape(path, claim.id(), ipv6) };
            let dir = claim.dir().join(lab::slug(path.name));
            let mut built = BuiltTopology::build(path.name, shape, &staffing(), &dir).unwrap();
            let nodes = built.topology.nodes.as_ref().map(|node| node.place.clone());
            let Topology { client, server, .. } = &built.topology;
            let bare = [*client == nodes.client, *server == nodes.server];
            assert_eq!(bare, [in_container == Side::Server, in_container == Side::Client], "{}", path.name);
            built.connect(100, 3).unwrap();
            let schedule = Schedule::Constant { rate_per_s: 1000.0 };
            let at = Run {
                drain: Duration::from_secs(5),
                wait: Wait::Sleep,
                ..Run::new(schedule, Duration::from_millis(40))
            };
            let outcome = load::run(built.clients(100), &at).unwrap();
            let way = format!("{} {in_container} IPv6 {ipv6}", path.name);
            assert_eq!(outcome.answered, 40, "{way}: {outcome:?}");
            if in_container == Side::Client {
                // Without masquerading, as for any machine outside the cluster. flannel and Docker masquerade
                // a pod's packets to it, and what a process carries is the node's own.
                let masquerades = ["bridge", "docker", "pasta", "slirp4netns"].contains(&path.attach.name());
                assert_eq!(is_seen_as_its_node(&built), masquerades, "{way}");
            }
            built.take_down().unwrap();
            assert_eq!(left(claim.id()), []);
        }
    }
    assert_eq!(
        std::fs::read_dir(claim.dir()).unwrap().count(),
        2,
        "only the owner file and its lock are left"
    );
    claim.end().unwrap();
}

/// Whether the server's sockets have the client's node as their peer.
fn is_seen_as_its_node(built: &BuiltTopology) -> bool {
    let topology = &built.topology;
    let node = topology.nodes.client.underlay.of(topology.shape.family);
    let netns = topology.server.open().unwrap();
    let sockets = run(&netns, "ss", &["-Htn", "state", "established"]);
    let peer = SocketAddr::new(node.unwrap(), 0).to_string();
    sockets.contains(peer.trim_end_matches('0'))
}

/// A race checks the counters of each path after each trial.
#[test]
fn packets_take_the_path_of_the_side_that_has_a_pod() {
    for ipv6 in [false, true] {
        let mut ground = Ground::new(&[]);
        ground.experiment.rounds = 2;
        ground.experiment.builds = 1;
        ground.experiment.workload.ipv6 = ipv6;
        ground.experiment.candidates =
            runnable().into_iter().flat_map(|path| candidates(path, ipv6)).collect();
        let (finished, race) = ground.run(&mut |_| {});
        finished.unwrap();
        assert_eq!(changed(&race), [], "IPv6 {ipv6}");
        let broken: Vec<_> = race.rounds.iter().flat_map(|round| &round.broken).collect();
        assert!(broken.is_empty(), "IPv6 {ipv6}: {broken:?} of {:?}", race.header.entrants);
        assert_eq!(race.header.entrants.len(), 2 + ground.experiment.candidates.len());
    }
}

fn candidates(path: &datapath::DataPath, ipv6: bool) -> Vec<Candidate> {
    let is_called = path.attach.refuses_callers(lab::family(ipv6)).is_none();
    let of = |in_container| Candidate {
        path: path.name.to_owned(),
        in_container,
        required: true,
        ..Candidate::default()
    };
    sides(path).into_iter().filter(|side| is_called || *side == Side::Client).map(of).collect()
}
