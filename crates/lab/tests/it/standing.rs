//! Every data path can be built, answers, and is removed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use datapath::{DataPath, Family};
use lab::{
    BuiltTopology, Contender, Home, LabError, NodeCpus, PluginDirs, ServerChoice, Shape, Staffing, Topology,
    Wires, family,
};
use linux::cpu::Scheduling;
use linux::{NetnsName, netns};
use load::{Run, Schedule, Wait};
use plan::Unit;
use record::{Candidate, Placement, ServerKind, Side, Workload};

use crate::paths::runnable;

pub(crate) fn staffing() -> Staffing {
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(PathBuf::from);
    Staffing {
        machines: None,
        server: ServerChoice::decide(ServerKind::Nginx, nginx.as_deref(), &crate::own("unused")).unwrap(),
        scheduling: Scheduling::Normal,
        connections: 16,
        outlives_us: false,
        plant: None,
        proxies: lab::ByRole::default(),
        workload: Workload { body_bytes: vec![100, 4096], ..Workload::default() },
    }
}

pub(crate) fn shape(path: &'static DataPath, id: &str, ipv6: bool) -> Shape {
    Shape {
        prefix: format!("hg-{id}-{}", lab::slug(path.name)),
        path,
        mtu_bytes: 1500,
        cpus: NodeCpus::split(&linux::cpu::allowed().unwrap()),
        spare: linux::CpuSet::default(),
        families: ::lab::families(),
        family: family(ipv6),
        steered: true,
        settings: tune::Settings::default(),
        cni: None,
        placement: Placement::TwoNodes,
        in_container: Side::Both,
        cards: None,
        wires: Wires::default(),
        proxies: record::Proxies::default(),
        stack: record::Stack::default(),
        filter: None,
        rdma: None,
        flood: None,
        protocol: datapath::Protocol::Tcp,
        machines: None,
    }
}

pub(crate) fn left(id: &str) -> Vec<NetnsName> {
    let prefix = format!("hg-{id}-");
    netns::list().unwrap().into_iter().filter(|name| name.as_str().starts_with(&prefix)).collect()
}

#[test]
fn every_data_path_answers_over_both_families_and_goes() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    for path in runnable() {
        let is_called = |ipv6: &bool| path.attach.refuses_callers(family(*ipv6)).is_none();
        let called = [false, true].into_iter().filter(is_called);
        let ways = called.map(|ipv6| [(ipv6, Placement::TwoNodes), (ipv6, Placement::SameNode)]);
        for (ipv6, placement) in ways.flatten() {
            answers_and_goes(path, Shape { placement, ..shape(path, claim.id(), ipv6) }, &claim);
        }
        if is_called(&true) && ::lab::families().contains(&Family::V6) {
            let alone = Shape { families: &[Family::V6], ..shape(path, claim.id(), true) };
            answers_and_goes(path, alone, &claim);
        }
    }
    assert_eq!(
        std::fs::read_dir(claim.dir()).unwrap().count(),
        2,
        "only the owner file and its lock are left"
    );
    claim.end().unwrap();
}

fn answers_and_goes(path: &'static DataPath, shape: Shape, claim: &Unit) {
    let way = format!("{} {:?} of {:?} {:?}", path.name, shape.family, shape.families, shape.placement);
    let dir = claim.dir().join(lab::slug(path.name));
    let mut built = BuiltTopology::build(path.name, shape, &staffing(), &dir).unwrap();
    for (body_bytes, requests) in [(100, 40), (4096, 20)] {
        built.connect(body_bytes, 3).unwrap();
        let schedule = Schedule::Constant { rate_per_s: 1000.0 };
        let run = Run {
            drain: Duration::from_secs(5),
            wait: Wait::Sleep,
            ..Run::new(schedule, Duration::from_millis(requests))
        };
        let outcome = load::run(built.clients(body_bytes), &run).unwrap();
        assert_eq!(outcome.answered, requests, "{way}: {outcome:?}");
    }
    built.take_down().unwrap();
    assert_eq!(left(claim.id()), [], "{way}");
}

/// Both families, or IPv4 alone on a kernel started with `ipv6.disable=1`. No candidate is left out for that.
#[test]
fn the_families_of_the_kernel_are_those_of_nodes_and_pods() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let has_ipv6 = std::fs::exists("/proc/sys/net/ipv6").unwrap();
    let named = ["docker", "bridge+vxlan"].map(|path| Candidate {
        path: path.to_owned(),
        required: true,
        ..Candidate::default()
    });
    let facts = linux::features::probe().unwrap();
    let contenders = lab::contenders(&named, &facts, &PluginDirs::default()).unwrap();
    for Contender { name, path, .. } in contenders {
        let shape = |ipv6| Shape {
            prefix: format!("hg-{}-{}", claim.id(), lab::slug(&name)),
            ..shape(path, claim.id(), ipv6)
        };
        let mut built =
            BuiltTopology::build(&name, shape(false), &staffing(), &claim.dir().join(lab::slug(&name)))
                .unwrap();
        for node in built.topology.nodes.as_ref().both() {
            assert_eq!((node.underlay.v6.is_some(), node.pods.families().len() == 2), (has_ipv6, has_ipv6));
        }
        built.connect(100, 3).unwrap();
        let run = Run {
            drain: Duration::from_secs(5),
            wait: Wait::Sleep,
            ..Run::new(Schedule::Constant { rate_per_s: 1000.0 }, Duration::from_millis(40))
        };
        assert_eq!(load::run(built.clients(100), &run).unwrap().answered, 40, "{name}");
        built.take_down().unwrap();
        match Topology::plan(shape(true)) {
            Ok(_) => assert!(has_ipv6, "{name} is planned with IPv6, which the kernel lacks"),
            Err(error) => assert!(!has_ipv6 && matches!(error, LabError::NoIpv6), "{error}"),
        }
    }
    claim.end().unwrap();
}

#[test]
fn a_failed_start_of_the_server_takes_the_topology_down() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let path = datapath::find("docker").unwrap();
    // An executable that exits at once instead of serving.
    let server = ServerChoice::Hostgap(crate::own("/bin/false"));
    let staffing = Staffing { server, ..staffing() };
    let result = BuiltTopology::build(
        "docker",
        shape(path, claim.id(), false),
        &staffing,
        &claim.dir().join("docker"),
    );
    let error = result.err().unwrap().to_string();
    assert!(error.contains("the server of docker ended by itself"), "{error}");
    assert_eq!(left(claim.id()), []);
}

#[test]
fn keys_go_with_a_topology_that_cannot_have_a_journal() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let path = datapath::find("ptp+wireguard").unwrap();
    let dir = claim.dir().join("secret");
    std::fs::write(claim.dir().join("secret.journal"), "in the way").unwrap();
    let result = BuiltTopology::build("secret", shape(path, claim.id(), false), &staffing(), &dir);
    let error = result.err().unwrap().to_string();
    assert!(error.contains("secret.journal"), "{error}");
    assert!(!dir.exists());
}

#[test]
fn a_panic_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let (say, said) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let claim = home.claim().unwrap();
        let dir = claim.dir().join("docker");
        let path = datapath::find("docker").unwrap();
        let _standing =
            BuiltTopology::build("docker", shape(path, claim.id(), false), &staffing(), &dir).unwrap();
        say.send((claim.id().to_owned(), left(claim.id()).len())).unwrap();
        panic!("on purpose, while a topology stands");
    })
    .join();
    assert!(panicked.is_err());
    let (id, stood) = said.recv().unwrap();
    assert_eq!((stood, left(&id)), (4, vec![]));
    assert!(!root.path().join(&id).exists(), "the claim's directory went too");
}

/// A curve over loss has the candidates `loss 0.01 %` and `loss 0.1 %`, each with its own journal.
#[test]
fn candidates_whose_names_differ_behind_a_point_stand_together() {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let path = lab::find("host").unwrap();
    let build = |name: &str| {
        let shape = Shape {
            prefix: format!("hg-{}-{}", claim.id(), lab::slug(name)),
            ..shape(path, claim.id(), false)
        };
        BuiltTopology::build(name, shape, &staffing(), &claim.dir().join(lab::slug(name)))
    };
    let names = ["loss 0.01 %", "loss 0.1 %", "loss 0.5 %"];
    let built: Vec<BuiltTopology> = names.iter().map(|name| build(name).expect(name)).collect();
    let journals = || {
        let files = std::fs::read_dir(claim.dir()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "journal")).count()
    };
    assert_eq!(journals(), names.len());
    built.into_iter().for_each(|built| drop(built.take_down().unwrap()));
    assert_eq!((left(claim.id()), journals()), (vec![], 0));
}

/// Header and body of nginx's answer of 100 bytes, from its configuration or from a file.
fn answer(files: bool) -> String {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let path = datapath::find("host").unwrap();
    let dir = claim.dir().join("files");
    let staffing = Staffing { workload: Workload { files, ..staffing().workload }, ..staffing() };
    let built = BuiltTopology::build("files", shape(path, claim.id(), false), &staffing, &dir).unwrap();
    let (client, server) = (&built.topology.client, built.topology.address);
    let ask = || {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(b"GET /100 HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = client.open().unwrap().run(ask).unwrap();
    assert_eq!(dir.join("objects/100").exists(), files);
    built.take_down().unwrap();
    claim.end().unwrap();
    text
}

/// A workload that is compared with static files of 350 bytes on the wire sends as many, whatever their
/// source.
#[test]
fn an_answer_is_as_long_from_a_file_as_without() {
    let [text, file] = [false, true].map(answer);
    for answer in [&text, &file] {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("Last-Modified: "), "{head}");
        assert_eq!(body.len(), 100);
    }
    // The numbers in the header may differ in length.
    assert!(text.len().abs_diff(file.len()) <= 8, "{} and {}: {text}\n{file}", text.len(), file.len());
    assert!((330..=370).contains(&file.len()), "{}", file.len());
}
