//! From names to who races: data paths that can run here, and those that cannot, with the reason.

mod filters;

use std::path::Path;
use std::sync::Arc;

use datapath::{DataPath, Enters, SocketRole};
use linux::features::{Facts, Feature};
use record::{
    Candidate, Experiment, PacketFilter, Plant, Proxies, Side, Stack, StackKind, Underlay, Ways, WorkloadKind,
};
use tune::Settings;

use crate::cni::{CniNetwork, Configuration, PluginDirs};
use crate::{LabError, Wires, verbs};

/// A data path, or a network of CNI plugins, that was asked for.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The name in tables.
    pub name: String,
    /// The data path; [`datapath::CNI`] where plugins join pods to nodes.
    pub path: &'static DataPath,
    /// The plugins that do, if any.
    pub cni: Option<Arc<CniNetwork>>,
    /// What it stands for in the world.
    pub stands_for: String,
    /// What is set otherwise than the kernel has it.
    pub settings: Settings,
    /// Which side is in a container.
    pub in_container: Side,
    /// What of the wire is otherwise for it.
    pub ways: Ways,
    /// Its connections, where not the experiment's.
    pub connections: Option<u32>,
    /// What becomes of its frames, in a race of packets or of a flood.
    pub filter: Option<PacketFilter>,
    /// Answers that its server holds back on purpose.
    pub plant: Option<Plant>,
    /// What its connections pass through beside client and server.
    pub proxy: Proxies,
    /// What its server answers on.
    pub stack: Stack,
    /// That it cannot run is an error.
    pub required: bool,
    /// Why it cannot run here; empty: it races.
    pub unmet: Vec<String>,
}

/// The name of the reference's second entry, the A/A control.
pub const HOST_AGAIN: &str = "host again";

/// Who races in an experiment. In one of packets all are the host, each with a filter; no names stand for all filters but
/// the reference's. In all others as [`contenders`] has it.
pub fn field(experiment: &Experiment, facts: &Facts, dirs: &PluginDirs) -> Result<Vec<Contender>, LabError> {
    match experiment.workload.kind {
        WorkloadKind::Packets => filters::contenders(experiment, facts),
        WorkloadKind::Verbs if experiment.candidates.is_empty() => {
            contenders(&verbs::usual(experiment), facts, dirs)
        }
        _ => contenders(&experiment.candidates, facts, dirs),
    }
}

/// Turns names into contenders: the reference, the reference again, then the candidates in the order of the list of
/// data paths, then CNI configurations as they were given. No names at all stands for all data paths but those that
/// enter by name alone, of which those that cannot run are listed with their reason; what was required and cannot run
/// is an error, and so is a file that is no CNI configuration. Plugins are searched in `dirs`.
pub fn contenders(named: &[Candidate], facts: &Facts, dirs: &PluginDirs) -> Result<Vec<Contender>, LabError> {
    // Nodes are joined by veth links, for the reference too.
    if let Some(unmet) = facts.unmet(&[Feature::Veth]).into_iter().next() {
        return Err(LabError::NoTopology(unmet));
    }
    for candidate in named.iter().filter(|candidate| candidate.cni.is_none()) {
        find(&candidate.path)?;
    }
    let host = find("host")?;
    let mut contenders = vec![
        Contender::of(host, Vec::new()),
        Contender { name: HOST_AGAIN.to_owned(), ..Contender::of(host, Vec::new()) },
    ];
    for path in datapath::ALL {
        if named.is_empty() && path.enters == Enters::Always && path.name != host.name {
            contenders.push(Contender::of(path, reasons(path, facts)));
        }
        for candidate in named.iter().filter(|candidate| candidate.path == path.name) {
            // The host as it is races anyway.
            let plain = candidate.tune.is_empty()
                && candidate.underlay.is_empty()
                && candidate.proxy.is_empty()
                && candidate.stack.is_usual()
                && candidate.filter.is_none();
            if path.name != host.name || candidate.name.is_some() || !plain {
                contenders.push(Contender::asked(path, candidate, facts)?);
            }
        }
    }
    for candidate in named {
        let Some(file) = &candidate.cni else { continue };
        let contender = plugins(Path::new(file), candidate.required, facts, dirs)?;
        let name = match &candidate.name {
            Some(name) => name.clone(),
            None => free_name(&contender.name, &contenders),
        };
        let settings = settings(candidate, &name)?;
        contenders.push(Contender { name, settings, ..contender.with(candidate) });
    }
    Ok(contenders)
}

impl Contender {
    /// The data path's name for a record; every CNI configuration is one of its own.
    pub fn path_name(&self) -> &str {
        if self.path.name == datapath::CNI.name { &self.name } else { self.path.name }
    }

    /// The wire that it races on, where an experiment's is `underlay`.
    pub fn wires(&self, underlay: &Underlay) -> Wires {
        Wires::of(&underlay.with(&self.ways))
    }

    /// Whether it is known what it would be built of: not so for plugins that are not there.
    pub fn is_known(&self) -> bool {
        self.cni.is_some() || self.path.name != datapath::CNI.name
    }

    /// A data path as an experiment asks for it.
    fn asked(path: &'static DataPath, candidate: &Candidate, facts: &Facts) -> Result<Contender, LabError> {
        let stands_for = alone(path, candidate.in_container)?;
        let mut unmet = reasons(path, facts);
        unmet.extend(stack_unmet(candidate.stack, facts));
        unmet.extend(candidate.filter.into_iter().flat_map(|filter| filters::unmet(filter, facts)));
        if candidate.required && !unmet.is_empty() {
            return Err(LabError::CannotRun { path: path.name.to_owned(), reasons: unmet.join("; ") });
        }
        let name = candidate.title();
        let settings = settings(candidate, &name)?;
        let of = Contender { stands_for, ..Contender::of(path, unmet) };
        Ok(Contender { name, settings, ..of.with(candidate) })
    }

    /// With what an experiment asks for beside the path and the settings.
    fn with(self, candidate: &Candidate) -> Contender {
        let Candidate {
            underlay: ways,
            in_container,
            connections,
            filter,
            plant,
            proxy,
            stack,
            required,
            ..
        } = *candidate;
        let mut stands_for = self.stands_for;
        if let Some(plant) = plant {
            stands_for += &format!("; {plant}, on purpose");
        }
        if !proxy.is_empty() {
            stands_for += &format!("; {proxy}");
        }
        if !stack.is_usual() {
            stands_for += &format!("; server: {stack}");
        }
        if let Some(filter) = filter {
            stands_for += &format!("; flood: {}", filter.describe());
        }
        Contender {
            stands_for,
            in_container,
            ways,
            connections,
            filter,
            plant,
            proxy,
            stack,
            required,
            ..self
        }
    }

    fn of(path: &'static DataPath, unmet: Vec<String>) -> Contender {
        Contender {
            name: path.name.to_owned(),
            stands_for: path.stands_for.to_owned(),
            path,
            cni: None,
            settings: Settings::default(),
            in_container: Side::Both,
            ways: Ways::default(),
            connections: None,
            filter: None,
            plant: None,
            proxy: Proxies::default(),
            stack: Stack::default(),
            required: false,
            unmet,
        }
    }
}

/// What a data path stands for with these sides in containers; an error that says why where it cannot be so.
fn alone(path: &DataPath, in_container: Side) -> Result<String, LabError> {
    let (part, other) = match in_container {
        Side::Both => return Ok(path.stands_for.to_owned()),
        Side::Client => (SocketRole::Client, "server"),
        Side::Server => (SocketRole::Server, "client"),
    };
    path.alone(part)?;
    Ok(format!("{}; the {other} is on its node without a container", path.stands_for))
}

fn settings(candidate: &Candidate, name: &str) -> Result<Settings, LabError> {
    let failed = |why| LabError::Settings { candidate: name.to_owned(), why };
    Settings::read(&candidate.tune).map_err(failed)
}

/// The contender of a CNI configuration.
fn plugins(file: &Path, required: bool, facts: &Facts, dirs: &PluginDirs) -> Result<Contender, LabError> {
    let configuration = Configuration::read(file)?;
    let (name, stands_for) = (format!("cni:{}", configuration.list.name), configuration.stands_for());
    let mut needs = [datapath::CNI.needs(), configuration.needs()].concat();
    needs.dedup();
    let mut unmet: Vec<String> = facts.unmet(&needs).iter().map(ToString::to_string).collect();
    if required && !unmet.is_empty() {
        return Err(LabError::CannotRun { path: name, reasons: unmet.join("; ") });
    }
    let cni = match CniNetwork::find(configuration, dirs) {
        Ok(network) => Some(Arc::new(network)),
        Err(error) if required => return Err(error),
        Err(error) => {
            unmet.push(format!("could not {error}"));
            None
        }
    };
    Ok(Contender { name, cni, stands_for, ..Contender::of(&datapath::CNI, unmet) })
}

/// `cni:a`, then `cni:a-2`: names distinguish candidates and their namespaces.
fn free_name(name: &str, taken: &[Contender]) -> String {
    let is_free = |name: &String| taken.iter().all(|contender| contender.name != *name);
    let mut names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    names.find(is_free).expect("there is no end of numbers")
}

/// The data path of a name; otherwise an error that names the most similar one.
pub fn find(name: &str) -> Result<&'static DataPath, LabError> {
    datapath::find(name).ok_or_else(|| {
        let nearest = record::nearest(name, datapath::ALL.iter().map(|path| path.name));
        LabError::UnknownPath { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
    })
}

/// A candidate's name as part of a namespace's name. The record sees to it that names differ in more than signs.
pub fn slug(name: &str) -> String {
    let sound = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '_' | '-');
    let slug: String = name.chars().map(|sign| if sound(sign) { sign } else { '-' }).collect();
    if slug.len() <= SLUG_BYTES_MAX {
        return slug;
    }
    // FNV-1a, 32 bits: long names often differ at their ends alone.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}-{hash:08x}", &slug[..SLUG_BYTES_MAX - 9])
}

/// With the owner's id before it and a part behind it, a namespace's name has at most 64 bytes.
const SLUG_BYTES_MAX: usize = 40;

/// Why a server cannot have such a stack here.
fn stack_unmet(stack: Stack, facts: &Facts) -> Vec<String> {
    let needs: &[Feature] = match stack.kind {
        StackKind::Kernel => &[],
        StackKind::Afxdp => &[Feature::AfXdp],
        StackKind::Verbs => &[Feature::Verbs],
    };
    facts.unmet(needs).iter().map(ToString::to_string).collect()
}

fn reasons(path: &DataPath, facts: &Facts) -> Vec<String> {
    path.unmet(facts).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
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
        let candidate = Candidate {
            path: "host".into(),
            name: Some("whole".into()),
            underlay: ways,
            ..Candidate::default()
        };
        let found = resolved(&[candidate], &Facts::default()).unwrap();
        let underlay = Underlay { loss: Some("1%".parse().unwrap()), ..Underlay::default() };
        let told: Vec<String> = found.iter().map(|one| one.wires(&underlay).to_client.to_string()).collect();
        assert_eq!(told, ["loss 1%", "loss 1%", "loss 0%"]);
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
                both: [(knob.to_owned(), record::Asked::Number(1))].into(),
                ..record::Tuning::default()
            },
            ..Candidate::default()
        };
        let asked = [
            tuned("docker", None, "tcp_sack"),
            named(&["docker"]).remove(0),
            tuned("host", Some("tuned host"), "tcp_sack"),
            named(&["host"]).remove(0),
        ];
        let found = resolved(&asked, &Facts::default()).unwrap();
        let names: Vec<&str> = found.iter().map(|contender| contender.name.as_str()).collect();
        assert_eq!(names, ["host", HOST_AGAIN, "tuned host", "docker tcp_sack=1", "docker"]);
        let set: Vec<usize> = found.iter().map(|contender| contender.settings.server.len()).collect();
        assert_eq!(set, [0, 0, 1, 1, 0]);
        assert_eq!(found[2].path_name(), "host");
        let error =
            resolved(&[tuned("docker", None, "tcp_sakc")], &Facts::default()).unwrap_err().to_string();
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
        let asked =
            [alone("docker", Side::Client), alone("docker", Side::Server), alone("docker", Side::Both)];
        let found = resolved(&asked, &Facts::default()).unwrap();
        let told: Vec<(&str, &str)> =
            found[2..].iter().map(|one| (one.name.as_str(), one.stands_for.as_str())).collect();
        let docker = "Docker's default: a bridge with NAT and published ports";
        let [client, server] = ["server", "client"]
            .map(|other| format!("{docker}; the {other} is on its node without a container"));
        assert_eq!(
            told,
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
        let asked = [sh.clone(), named(&["docker"]).remove(0), sh.clone(), sh];
        let found = contenders(&asked, &Facts::default(), &PluginDirs::parse("/bin")).unwrap();
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
}
