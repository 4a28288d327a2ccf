//! How the race measured, and how to run it again: the experiment as the TOML file that would ask for the same.

use super::look;
use super::markup::Markup;
use super::text;
use crate::Summary;
use record::{
    Asked, Candidate, Experiment, Placement, Rate, ServerKind, Side, Steering, SweepValue, Swept, Tuning,
};

/// Writes the sections.
pub(super) fn sections(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "method")], |m| {
        m.leaf("h2", &[], "Method");
        m.within("ol", &[], |m| method(summary).iter().for_each(|line| m.leaf("li", &[], line)));
    });
    m.within("section", &[("id", "again")], |m| {
        m.leaf("h2", &[], "Run it again");
        m.leaf(
            "p",
            &[],
            "Save the experiment as experiment.toml and race it; the seed gives the same order of trials.",
        );
        m.leaf("pre", &[("tabindex", "0")], "hostgap race experiment.toml");
        m.leaf("pre", &[("tabindex", "0")], &toml(&summary.experiment, summary.seed));
        m.leaf("p", &[], "This page again, from the record that the race left beside it, on any machine:");
        m.leaf("pre", &[("tabindex", "0")], "hostgap report race.jsonl");
    });
}

fn method(summary: &Summary) -> Vec<String> {
    let (experiment, reference) = (&summary.experiment, look::reference(summary));
    vec![
        "Requests leave at a constant rate, each at its intended instant, whether or not earlier answers are there."
            .to_owned(),
        "Response time is received − intended; waiting to be sent is part of it. Service and lag stand beside it."
            .to_owned(),
        format!(
            "A trial is {} ms of one data path at one load, after {} ms of warm-up; a round visits every data path once \
             at every load, in an order shuffled by the seed, {reference} twice.",
            experiment.slice_ms, experiment.warmup_ms
        ),
        "All data paths stand at the same time in namespaces of their own, so that drift of the machine hits all alike."
            .to_owned(),
        format!(
            "Every topology was built {} times in the race: each build settles at a value of its own.",
            text::grouped(u64::from(summary.progress.builds))
        ),
        match summary.machine.facts.get("receive steering") {
            Some(steering) => format!("Receive steering, the same for all data paths: {steering}."),
            None => "Receive steering is the same for all data paths.".to_owned(),
        },
        "Percentiles are those of the merged histograms; one is shown if at least ten samples lie beyond it.".to_owned(),
        format!(
            "Intervals are 95 %, from a bootstrap that draws whole {}, the same for all, so that what hit all cancels.",
            if summary.progress.builds < 2 { "rounds" } else { "builds" }
        ),
        format!(
            "Better or worse is said of a difference that its interval, widened for the number of tests, holds and that \
             exceeds what {reference} differs by from itself; p99 is asked first, then p50, in a closed loop answers \
             per second. All else is indistinguishable."
        ),
        "A trial is void if the generator was late, its CPU had no headroom, time was stolen, its path was not the one that \
         was built, or a fact of the machine changed; void trials are counted and shown, and are in no figure."
            .to_owned(),
    ]
}

/// The experiment as its file.
fn toml(experiment: &Experiment, seed: u64) -> String {
    let Experiment { schema, rounds, builds, slice_ms, warmup_ms, .. } = experiment;
    let workload = &experiment.workload;
    let rates: Vec<String> = experiment.rates.iter().map(rate).collect();
    let server = match workload.server {
        ServerKind::Auto => "auto",
        ServerKind::Nginx => "nginx",
        ServerKind::Hostgap => "hostgap",
    };
    let steering = match experiment.underlay.steering {
        Steering::Auto => "auto",
        Steering::Receiver => "receiver",
        Steering::Sender => "sender",
    };
    let mut file = format!("schema = {schema}\nname = {}\n", string(&experiment.name));
    if !experiment.description.is_empty() {
        file += &format!("description = {}\n", string(&experiment.description));
    }
    if !rates.is_empty() {
        file += &format!("rates = [{}]\n", rates.join(", "));
    }
    if let Some(sweep) = &experiment.sweep {
        let values: Vec<String> = sweep.values.iter().map(swept).collect();
        let over = string(&sweep.over.to_string());
        file += &format!("sweep = {{ over = {over}, values = [{}] }}\n", values.join(", "));
    }
    if experiment.placement == Placement::SameNode {
        file += "placement = \"same_node\"\n";
    }
    if experiment.profile {
        file += "profile = true\n";
    }
    if experiment.by_cpu {
        file += "by_cpu = true\n";
    }
    file += &format!(
        "rounds = {rounds}\nbuilds = {builds}\nslice_ms = {slice_ms}\nwarmup_ms = {warmup_ms}\nseed = {seed}\n\n\
         [workload]\nbody_bytes = {:?}\nconnections = {}\nserver = \"{server}\"\nipv6 = {}\n\n\
         [underlay]\nmtu = {}\nsteering = \"{steering}\"\n",
        workload.body_bytes, workload.connections, workload.ipv6, experiment.underlay.mtu
    );
    file += &experiment.underlay.both_ways().to_toml();
    let ways = [("to_server", experiment.underlay.to_server), ("to_client", experiment.underlay.to_client)];
    for (name, way) in ways {
        file += &way.map_or_else(String::new, |way| format!("\n[underlay.{name}]\n{}", way.to_toml()));
    }
    experiment.candidates.iter().for_each(|candidate| file += &contender(candidate));
    file
}

/// A candidate as its part of the file.
fn contender(candidate: &Candidate) -> String {
    let mut file = "\n[[candidates]]\n".to_owned();
    file += &match &candidate.cni {
        Some(cni) => format!("cni = {}\n", string(cni)),
        None => format!("path = {}\n", string(&candidate.path)),
    };
    file += match candidate.in_container {
        Side::Both => "",
        Side::Client => "in_container = \"client\"\n",
        Side::Server => "in_container = \"server\"\n",
    };
    if candidate.required {
        file += "required = true\n";
    }
    if let Some(name) = &candidate.name {
        file += &format!("name = {}\n", string(name));
    }
    if let Some(connections) = candidate.connections {
        file += &format!("connections = {connections}\n");
    }
    if let Some(Swept { line, at }) = &candidate.swept {
        file += &format!("swept = {{ line = {}, at = {} }}\n", string(line), swept(at));
    }
    let Tuning { both, client, server } = &candidate.tune;
    for (side, knobs) in [("", both), ("client.", client), ("server.", server)] {
        for (knob, value) in knobs {
            file += &format!("tune.{side}{} = {}\n", string(knob), asked(value));
        }
    }
    for (name, way) in candidate.underlay.named() {
        file += &format!("\n[candidates.underlay.{name}]\n{}", way.to_toml());
    }
    file
}

fn asked(value: &Asked) -> String {
    match value {
        Asked::Switch(on) => on.to_string(),
        Asked::Number(number) => number.to_string(),
        Asked::Text(text) => string(text),
    }
}

fn swept(value: &SweepValue) -> String {
    match value {
        SweepValue::Number(number) => number.to_string(),
        SweepValue::Text(text) => string(text),
    }
}

fn rate(rate: &Rate) -> String {
    match rate {
        Rate::PerSecond(_) => rate.to_string(),
        Rate::OfCapacity(_) => string(&rate.to_string()),
    }
}

/// A basic string of TOML. Its escapes are those of JSON, but for DEL, which JSON leaves as it is.
fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use record::Underlay;

    use super::super::fixture;
    use super::*;

    #[test]
    fn the_experiment_on_the_page_is_the_experiment() {
        let mut asked = fixture::race().experiment;
        asked.description = "quotes \" and \\ and\nlines \u{7f} <script>".to_owned();
        asked.rates = vec![Rate::OfCapacity(0.07), Rate::PerSecond(20_000.0), Rate::PerSecond(1500.5)];
        asked.candidates[0].required = true;
        asked.candidates.push(Candidate { cni: Some("a \"b\".conflist".into()), ..Default::default() });
        let knobs = |values: &[Asked]| {
            values.iter().enumerate().map(|(at, value)| (format!("knob {at}"), value.clone())).collect()
        };
        let tune = Tuning {
            both: knobs(&[Asked::Switch(true), Asked::Number(-1), Asked::Text("4096 \"x\"".into())]),
            client: knobs(&[]),
            server: knobs(&[Asked::Number(7)]),
        };
        let name = Some("tuned \"host\"".to_owned());
        let loss = Some(record::Share { billionths: 2_000_000 });
        let lossy = record::Wire { loss, gso: Some(false), ..record::Wire::default() };
        let underlay = record::Ways { to_client: Some(lossy), ..record::Ways::default() };
        let named = Candidate { path: "host".into(), name, tune, ..Default::default() };
        asked.candidates.push(named.clone());
        asked.placement = Placement::SameNode;
        (asked.profile, asked.by_cpu) = (true, true);
        asked.underlay = Underlay { mtu: 9000, steering: Steering::Sender, ..Underlay::default() };
        let read = Experiment::from_toml(&toml(&asked, 7)).unwrap();
        asked.seed = Some(7);
        assert_eq!(read, asked);
        asked.placement = Placement::TwoNodes;
        asked.underlay.delay = Some(record::Delay { ns: 40_000_000 });
        asked.underlay.to_client = Some(lossy);
        let name = Some("lossy".to_owned());
        asked.candidates.push(Candidate { name, underlay, ..named });
        for in_container in [Side::Client, Side::Server] {
            asked.candidates.push(Candidate { path: "docker".into(), in_container, ..Default::default() });
        }
        assert_eq!(Experiment::from_toml(&toml(&asked, 7)).unwrap(), asked);
        asked.candidates.truncate(1);
        let loss = ["1%", "4%"].map(|loss| SweepValue::Text(loss.to_owned()));
        let numbers = || [1, 64].map(SweepValue::Number).to_vec();
        for (over, values) in [
            ("connections", numbers()),
            ("settings.client.initcwnd", numbers()),
            ("to_client.loss", loss.to_vec()),
        ] {
            asked.sweep = Some(record::Sweep { over: over.parse().unwrap(), values });
            let laid = asked.swept();
            assert_eq!(laid.candidates.len(), 2);
            assert_eq!(Experiment::from_toml(&toml(&laid, 7)).unwrap(), laid, "{over}");
        }
    }
}
