//! The candidates of a race of packets against filters: the host, each time with another filter.

use linux::features::{Facts, Feature};
use record::{Candidate, Experiment, PacketFilter};

use super::{Contender, HOST_AGAIN, find, settings};
use crate::{LabError, packets};

/// The reference with the workload's filter, the same again, and the candidates in their order.
pub(super) fn contenders(experiment: &Experiment, facts: &Facts) -> Result<Vec<Contender>, LabError> {
    if let Some(unmet) = facts.unmet(&[Feature::Veth]).into_iter().next() {
        return Err(LabError::NoTopology(unmet));
    }
    let reference = experiment.workload.filter.unwrap_or_default();
    let host = Contender { required: true, ..contender("host", reference, facts)? };
    let again = Contender { name: HOST_AGAIN.to_owned(), ..host.clone() };
    let mut all = vec![host, again];
    if experiment.candidates.is_empty() {
        let others = PacketFilter::ALL.into_iter().filter(|filter| *filter != reference);
        let others = others.map(|filter| contender(filter.name(), filter, facts));
        all.extend(others.collect::<Result<Vec<_>, _>>()?);
    }
    for candidate in &experiment.candidates {
        all.push(requested(candidate, facts)?);
    }
    let cannot = |one: &&Contender| one.required && !one.unmet.is_empty();
    match all.iter().find(cannot) {
        Some(one) => Err(LabError::CannotRun { path: one.name.clone(), reasons: one.unmet.join("; ") }),
        None => Ok(all),
    }
}

fn requested(candidate: &Candidate, facts: &Facts) -> Result<Contender, LabError> {
    let name = candidate.title();
    let settings = settings(candidate, &name)?;
    let filter = candidate.filter.unwrap_or_default();
    Ok(Contender { settings, required: candidate.required, ..contender(&name, filter, facts)? })
}

fn contender(name: &str, filter: PacketFilter, facts: &Facts) -> Result<Contender, LabError> {
    let host = find("host")?;
    let unmet = unmet(filter, facts);
    let stands_for = filter.describe().to_owned();
    Ok(Contender { name: name.to_owned(), stands_for, filter: Some(filter), ..Contender::of(host, unmet) })
}

/// What this kernel lacks of a filter's rules, in words.
pub(super) fn unmet(filter: PacketFilter, facts: &Facts) -> Vec<String> {
    let needs: &[Feature] = if packets::has_rules(filter) { &[Feature::Nftables] } else { &[] };
    facts.unmet(needs).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use record::{Workload, WorkloadKind};

    use super::*;

    fn packets(filter: Option<PacketFilter>, candidates: Vec<Candidate>) -> Experiment {
        let workload = Workload { filter, ..Workload::of(WorkloadKind::Packets) };
        Experiment { workload, candidates, ..Experiment::default() }
    }

    fn candidate(filter: PacketFilter) -> Candidate {
        Candidate { path: "host".to_owned(), filter: Some(filter), required: true, ..Candidate::default() }
    }

    #[test]
    fn no_names_stand_for_all_filters_and_the_reference_races_twice() {
        let all = contenders(&packets(None, vec![]), &Facts::default()).unwrap();
        assert_eq!(all.len(), PacketFilter::ALL.len() + 1);
        let first: Vec<_> = all.iter().take(3).map(|one| (one.name.as_str(), one.filter.unwrap())).collect();
        let socket = PacketFilter::Socket;
        assert_eq!(first, [("host", socket), (HOST_AGAIN, socket), ("xdp-drop", PacketFilter::XdpDrop)]);
        assert!(all.iter().all(|one| one.path_name() == "host"));
    }

    #[test]
    fn the_same_filter_may_race_against_itself() {
        let raw = PacketFilter::NftRaw;
        let all = contenders(&packets(Some(raw), vec![candidate(raw)]), &Facts::default()).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["host", HOST_AGAIN, "nft-raw"]);
        assert!(all.iter().all(|one| one.filter == Some(raw)));
    }

    #[test]
    fn without_nftables_its_filters_say_so_and_a_required_one_is_an_error() {
        let without = Facts { missing: [(Feature::Nftables, "none".to_owned())].into(), ..Facts::default() };
        let all = contenders(&packets(None, vec![]), &without).unwrap();
        let unmet: Vec<&str> =
            all.iter().filter(|one| !one.unmet.is_empty()).map(|one| one.name.as_str()).collect();
        assert_eq!(unmet, ["nft-ingress", "nft-raw", "nft-input", "nft-input-ct"]);
        let error = contenders(&packets(None, vec![candidate(PacketFilter::NftRaw)]), &without).unwrap_err();
        assert!(error.to_string().starts_with("run nft-raw here: "), "{error}");
        assert!(contenders(&packets(Some(PacketFilter::NftRaw), vec![]), &without).is_err(), "the reference");
    }
}
