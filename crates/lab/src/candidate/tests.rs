use super::*;

fn named(names: &[&str]) -> Vec<Candidate> {
    names
        .iter()
        .map(|name| Candidate { path: (*name).to_owned(), required: true, ..Candidate::default() })
        .collect()
}

fn resolved(named: &[Candidate], facts: &Facts) -> Result<Vec<Contender>, LabError> {
    contenders(named, facts, &PluginDirs::default())
}

fn without(feature: Feature) -> Facts {
    Facts { kernel: "6.1".into(), missing: [(feature, "operation not supported".to_owned())].into() }
}

#[test]
fn a_wire_of_its_own_makes_a_candidate_of_the_host() {
    let lossless = record::Wire { loss: Some("0%".parse().unwrap()), ..record::Wire::default() };
    let ways = Ways { to_client: Some(lossless), ..Ways::default() };
    let candidate =
        Candidate { path: "host".into(), name: Some("whole".into()), underlay: ways, ..Candidate::default() };
    let found = resolved(&[candidate], &Facts::default()).unwrap();
    let underlay = Underlay { loss: Some("1%".parse().unwrap()), ..Underlay::default() };
    let wires: Vec<String> = found.iter().map(|one| one.wires(&underlay).to_client.to_string()).collect();
    assert_eq!(wires, ["loss 1%", "loss 1%", "loss 0%"]);
}

#[test]
fn connections_of_its_own_make_a_candidate_of_the_host() {
    let (path, name) = ("host".to_owned(), Some("many".to_owned()));
    let many = Candidate { path, name, connections: Some(512), ..Candidate::default() };
    let found = resolved(&[many], &Facts::default()).unwrap();
    assert_eq!(found.iter().map(|one| one.connections).collect::<Vec<_>>(), [None, None, Some(512)]);
}

#[test]
fn host_races_twice_and_first() {
    let names: Vec<String> =
        resolved(&named(&["docker"]), &Facts::default()).unwrap().into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["host", HOST_AGAIN, "docker"]);
}

#[test]
fn a_path_with_settings_races_beside_itself_and_the_host_stays_untouched() {
    let tuned = |path: &str, name: Option<&str>, knob: &str| Candidate {
        path: path.to_owned(),
        name: name.map(str::to_owned),
        tune: record::Tuning {
            both: [(knob.to_owned(), record::RequestedValue::Number(1))].into(),
            ..record::Tuning::default()
        },
        ..Candidate::default()
    };
    let candidates = [
        tuned("docker", None, "tcp_sack"),
        named(&["docker"]).remove(0),
        tuned("host", Some("tuned host"), "tcp_sack"),
        named(&["host"]).remove(0),
    ];
    let found = resolved(&candidates, &Facts::default()).unwrap();
    let names: Vec<&str> = found.iter().map(|contender| contender.name.as_str()).collect();
    assert_eq!(names, ["host", HOST_AGAIN, "tuned host", "docker tcp_sack=1", "docker"]);
    let set: Vec<usize> = found.iter().map(|contender| contender.settings.server.len()).collect();
    assert_eq!(set, [0, 0, 1, 1, 0]);
    assert_eq!(found[2].path_name(), "host");
    let error = resolved(&[tuned("docker", None, "tcp_sakc")], &Facts::default()).unwrap_err().to_string();
    assert!(
        error.contains("docker tcp_sakc=1: there is no knob") && error.contains("\"tcp_sack\""),
        "{error}"
    );
}

#[test]
fn one_side_alone_says_so_or_why_it_cannot() {
    let alone = |path: &str, in_container| Candidate {
        path: path.to_owned(),
        in_container,
        required: true,
        ..Candidate::default()
    };
    let candidates =
        [alone("docker", Side::Client), alone("docker", Side::Server), alone("docker", Side::Both)];
    let found = resolved(&candidates, &Facts::default()).unwrap();
    let names: Vec<(&str, &str)> =
        found[2..].iter().map(|one| (one.name.as_str(), one.stands_for.as_str())).collect();
    let docker = "Docker's default: a bridge with NAT and published ports";
    let [client, server] =
        ["server", "client"].map(|other| format!("{docker}; the {other} is on its node without a container"));
    assert_eq!(
        names,
        [("docker, client only", client.as_str()), ("docker, server only", &server), ("docker", docker)]
    );
    let error = resolved(&[alone("ebpf+direct", Side::Client)], &Facts::default()).unwrap_err();
    assert!(error.to_string().contains("takes the kernel's path"), "{error}");
}

#[test]
fn slugs_are_short_and_sound() {
    assert_eq!(slug("host tcp_sack=0"), "host-tcp_sack-0");
    let long = ["é".repeat(60), format!("{}1", "a".repeat(59)), format!("{}2", "a".repeat(59))]
        .map(|name| slug(&name));
    assert!(long.iter().all(|slug| linux::NetnsName::new(format!("hg-0123456-{slug}-client")).is_ok()));
    assert_ne!(long[1], long[2]);
}

#[test]
fn no_names_stand_for_all_and_what_cannot_run_says_why() {
    let all = resolved(&[], &without(Feature::Ipvlan)).unwrap();
    let always = datapath::ALL.iter().filter(|path| path.enters == Enters::Always).count();
    assert_eq!(all.len(), always + 1);
    assert!(all.iter().all(|contender| contender.name != "ebpf+sockmap"), "it enters by name alone");
    let ipvlan = all.iter().find(|c| c.name == "ipvlan-l2").unwrap();
    assert!(ipvlan.unmet[0].contains("ipvlan"), "{:?}", ipvlan.unmet);
}

#[test]
fn a_path_for_a_special_case_races_by_name() {
    let named = resolved(&named(&["ebpf+sockmap"]), &Facts::default()).unwrap();
    assert_eq!(named.last().unwrap().name, "ebpf+sockmap");
}

#[test]
fn a_named_path_that_cannot_run_is_an_error() {
    let error = resolved(&named(&["ipvlan-l3"]), &without(Feature::Ipvlan)).unwrap_err();
    assert!(error.to_string().contains("run ipvlan-l3 here"), "{error}");
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    let error = resolved(&named(&["brige+vxlan"]), &Facts::default()).unwrap_err();
    assert!(error.to_string().contains("did you mean \"bridge+vxlan\"?"), "{error}");
    let error = resolved(&named(&["quux"]), &Facts::default()).unwrap_err();
    assert!(!error.to_string().contains("did you mean"), "{error}");
}

/// A configuration of a plugin that any machine has, as a candidate.
fn of_sh(dir: &Path, name: &str, required: bool) -> Candidate {
    let file = dir.join("sh.conf");
    let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"sh","ipam":{{"type":"cat"}}}}"#);
    std::fs::write(&file, text).unwrap();
    Candidate { cni: Some(file.display().to_string()), required, ..Candidate::default() }
}

#[test]
fn cni_configurations_race_after_the_paths_each_with_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let sh = of_sh(dir.path(), "a", true);
    let candidates = [sh.clone(), named(&["docker"]).remove(0), sh.clone(), sh];
    let found = contenders(&candidates, &Facts::default(), &PluginDirs::parse("/bin")).unwrap();
    let names: Vec<&str> = found.iter().map(|contender| contender.name.as_str()).collect();
    assert_eq!(names, ["host", HOST_AGAIN, "docker", "cni:a", "cni:a-2", "cni:a-3"]);
    assert_eq!((found[4].stands_for.as_str(), found[4].path_name()), ("CNI sh + cat", "cni:a-2"));
    assert_eq!(slug(&found[4].name), "cni-a-2");
}

#[test]
fn a_missing_plugin_is_an_error_where_it_is_required_and_a_reason_where_not() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = PluginDirs::parse("/nonexistent");
    let error = contenders(&[of_sh(dir.path(), "a", true)], &Facts::default(), &nowhere).unwrap_err();
    assert!(matches!(error, LabError::NoPlugin { .. }), "{error}");
    let found = contenders(&[of_sh(dir.path(), "a", false)], &Facts::default(), &nowhere).unwrap();
    assert!(found[2].unmet[0].contains("\"cat\" is in none of the directories /nonexistent"));
    assert!(found[2].cni.is_none() && !found[2].is_known() && found[0].is_known());
    // A file that is none cannot be meant.
    assert!(contenders(&[of_sh(dir.path(), "", false)], &Facts::default(), &nowhere).is_err());
}

#[test]
fn without_what_the_nodes_are_made_of_nothing_races() {
    let error = resolved(&[], &without(Feature::Veth)).unwrap_err();
    assert!(matches!(&error, LabError::NoTopology(unmet) if unmet.feature == Feature::Veth), "{error}");
}

#[test]
fn without_ipv6_all_that_race_over_ipv4_do() {
    let all = resolved(&[], &without(Feature::Ipv6)).unwrap();
    let kept_out: Vec<_> = all.iter().filter(|contender| !contender.unmet.is_empty()).collect();
    assert!(kept_out.is_empty(), "{kept_out:?}");
}
