//! From names to who races: data paths that can run here, and those that cannot, with the reason.

use datapath::{DataPath, Enters};
use linux::features::{Facts, Feature};
use record::Candidate;

use crate::LabError;

/// A data path that was asked for.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The name in tables.
    pub name: String,
    /// The data path.
    pub path: &'static DataPath,
    /// Why it cannot run here; empty: it races.
    pub unmet: Vec<String>,
}

/// The name of the reference's second entry, the A/A control.
pub const HOST_AGAIN: &str = "host again";

/// Turns names into contenders: the reference, the reference again, then the candidates in the order of the list of
/// data paths. No names at all stands for all data paths but those that enter by name alone, of which those that cannot run are listed with their
/// reason; a data path that was named and cannot run is an error.
pub fn contenders(named: &[Candidate], facts: &Facts) -> Result<Vec<Contender>, LabError> {
    // Nodes have addresses of both families and are joined by veth links, for the reference too.
    if let Some(unmet) = facts.unmet(&[Feature::Veth, Feature::Ipv6]).into_iter().next() {
        return Err(LabError::NoTopology(unmet));
    }
    for candidate in named {
        let path = find(&candidate.path)?;
        let unmet = reasons(path, facts);
        if candidate.required && !unmet.is_empty() {
            return Err(LabError::CannotRun { path: path.name.to_owned(), reasons: unmet.join("; ") });
        }
    }
    let asked = |path: &DataPath| {
        named.is_empty() && path.enters == Enters::Always
            || named.iter().any(|candidate| candidate.path == path.name)
    };
    let host = find("host")?;
    let mut contenders = vec![
        Contender { name: host.name.to_owned(), path: host, unmet: Vec::new() },
        Contender { name: HOST_AGAIN.to_owned(), path: host, unmet: Vec::new() },
    ];
    for path in datapath::ALL.iter().filter(|path| path.name != host.name && asked(path)) {
        contenders.push(Contender { name: path.name.to_owned(), path, unmet: reasons(path, facts) });
    }
    Ok(contenders)
}

/// The data path of a name; otherwise an error that names the most similar one.
pub fn find(name: &str) -> Result<&'static DataPath, LabError> {
    datapath::find(name).ok_or_else(|| {
        let similarity = |path: &&DataPath| (strsim::jaro_winkler(name, path.name) * 1000.0) as u32;
        let nearest = datapath::ALL.iter().max_by_key(similarity).filter(|path| similarity(path) >= 700);
        LabError::UnknownPath { name: name.to_owned(), nearest: nearest.map(|path| path.name.to_owned()) }
    })
}

/// A candidate's name as part of a namespace's name.
pub fn slug(name: &str) -> String {
    name.replace(['+', ' '], "-")
}

fn reasons(path: &DataPath, facts: &Facts) -> Vec<String> {
    path.unmet(facts).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Candidate> {
        names.iter().map(|name| Candidate { path: (*name).to_owned(), required: true }).collect()
    }

    fn without(feature: Feature) -> Facts {
        Facts { kernel: "6.1".into(), missing: [(feature, "operation not supported".to_owned())].into() }
    }

    #[test]
    fn host_races_twice_and_first() {
        let names: Vec<String> =
            contenders(&named(&["docker"]), &Facts::default()).unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["host", HOST_AGAIN, "docker"]);
    }

    #[test]
    fn no_names_stand_for_all_and_what_cannot_run_says_why() {
        let all = contenders(&[], &without(Feature::Ipvlan)).unwrap();
        let always = datapath::ALL.iter().filter(|path| path.enters == Enters::Always).count();
        assert_eq!(all.len(), always + 1);
        assert!(all.iter().all(|contender| contender.name != "ebpf+sockmap"), "it enters by name alone");
        let ipvlan = all.iter().find(|c| c.name == "ipvlan-l2").unwrap();
        assert!(ipvlan.unmet[0].contains("ipvlan"), "{:?}", ipvlan.unmet);
    }

    #[test]
    fn a_path_for_a_special_case_races_by_name() {
        let named = contenders(&named(&["ebpf+sockmap"]), &Facts::default()).unwrap();
        assert_eq!(named.last().unwrap().name, "ebpf+sockmap");
    }

    #[test]
    fn a_named_path_that_cannot_run_is_an_error() {
        let error = contenders(&named(&["ipvlan-l3"]), &without(Feature::Ipvlan)).unwrap_err();
        assert!(error.to_string().contains("ipvlan-l3 cannot run here"), "{error}");
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let error = contenders(&named(&["brige+vxlan"]), &Facts::default()).unwrap_err();
        assert!(error.to_string().contains("did you mean \"bridge+vxlan\"?"), "{error}");
        let error = contenders(&named(&["quux"]), &Facts::default()).unwrap_err();
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }

    #[test]
    fn without_what_the_nodes_are_made_of_nothing_races() {
        for feature in [Feature::Veth, Feature::Ipv6] {
            let error = contenders(&[], &without(feature)).unwrap_err();
            assert!(matches!(&error, LabError::NoTopology(unmet) if unmet.feature == feature), "{error}");
        }
    }
}
