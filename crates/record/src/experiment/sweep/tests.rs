//! Sweeps as they are written, laid out and refused.

use proptest::prelude::*;

use super::*;
use crate::experiment_error::ExperimentError;

fn read(lines: &str) -> Result<Experiment, ExperimentError> {
    Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"))
}

#[track_caller]
fn check(lines: &str, message: &str) {
    assert_eq!(read(lines).expect_err(lines).to_string(), message);
}

#[track_caller]
fn laid(lines: &str) -> Experiment {
    read(lines).expect(lines).swept()
}

const TWO: &str = "[[candidates]]\npath = \"docker\"\n[[candidates]]\npath = \"host\"\nname = \"bbr\"\n\
                   tune.tcp_congestion_control = \"bbr\"\n";

#[test]
fn sizes_and_rates_become_loads() {
    let sizes =
        laid("workload.kind = \"udp-stream\"\nsweep = { over = \"body_bytes\", values = [64, 512, 1472] }");
    assert_eq!(sizes.workload.body_bytes, [64, 512, 1472]);
    let sweep = sizes.sweep.as_ref().expect("it stays, so that a report knows the axis");
    assert_eq!((sweep.places().unwrap(), sweep.unit()), (vec![64.0, 512.0, 1472.0], AxisUnit::Bytes));
    let rates = laid("sweep = { over = \"rate\", values = [\"10%\", \"50%\", \"100%\"] }");
    assert_eq!(
        rates.rates,
        [RequestedRate::OfCapacity(0.1), RequestedRate::OfCapacity(0.5), RequestedRate::OfCapacity(1.0)]
    );
    assert_eq!(rates.sweep.unwrap().unit(), AxisUnit::PercentOfCapacity);
    let rates = laid("sweep = { over = \"rate\", values = [500, \"20k\"] }");
    assert_eq!(rates.rates, [RequestedRate::PerSecond(500.0), RequestedRate::PerSecond(2e4)]);
    let ordered =
        laid("workload.body_bytes = [500, 20]\nsweep = { over = \"body_bytes\", values = [20, 500] }");
    assert_eq!(ordered.workload.body_bytes, [500, 20], "the order is the file's");
}

#[test]
fn the_rest_becomes_candidates_that_know_their_place() {
    let lossy = laid(&format!("sweep = {{ over = \"to_server.loss\", values = [\"0.1%\", \"4%\"] }}\n{TWO}"));
    let titles: Vec<String> = lossy.candidates.iter().map(Candidate::title).collect();
    assert_eq!(titles, ["docker 0.1 %", "docker 4 %", "bbr 0.1 %", "bbr 4 %"]);
    let last = &lossy.candidates[3];
    let swept = last.swept.as_ref().unwrap();
    assert_eq!((swept.line.as_str(), swept.at.to_string().as_str()), ("bbr", "4%"));
    let ways = last.underlay;
    assert_eq!((ways.to_server.unwrap().to_string(), ways.to_client), ("loss 4%".to_owned(), None));
    assert_eq!(last.tune.both.len(), 1, "what else a candidate has stays");

    let both = laid(&format!("sweep = {{ over = \"delay\", values = [\"1ms\", \"40ms\"] }}\n{TWO}"));
    let named: Vec<_> =
        both.candidates[1].underlay.named().map(|(way, wire)| (way, wire.to_string())).collect();
    assert_eq!(named, [("to_server", "delay 40ms".to_owned()), ("to_client", "delay 40ms".to_owned())]);

    let knob = laid(&format!("sweep = {{ over = \"settings.server.initcwnd\", values = [4, 10] }}\n{TWO}"));
    assert_eq!(knob.candidates[1].title(), "docker server.initcwnd=10");
    assert_eq!(knob.candidates[1].tune.server["initcwnd"], RequestedValue::Number(10));

    let many = laid(&format!("sweep = {{ over = \"connections\", values = [1, 64] }}\n{TWO}"));
    assert_eq!(
        (many.candidates[3].title().as_str(), many.candidates[3].connections),
        ("bbr 64 connections", Some(64))
    );
    assert_eq!(many.candidates[0].title(), "docker 1 connection");
    assert_eq!(many.workload.connections, 32, "the reference's");
}

#[test]
fn the_quick_form_may_have_fewer_values() {
    let text = format!(
        "sweep = {{ over = \"loss\", values = [\"1%\", \"2%\", \"4%\"] }}\n{TWO}[quick]\nrounds = 2\nbuilds = 2\n\
         sweep.values = [\"1%\", \"4%\"]"
    );
    let quick = read(&text).unwrap().quick().unwrap().expect("there is a table").swept();
    assert_eq!(quick.candidates.len(), 4);
    assert_eq!(quick.candidates[1].title(), "docker 4 %");
    let error = read(&text.replace("\"1%\", \"4%\"]", "\"4%\"]")).unwrap_err().to_string();
    assert!(error.starts_with("[quick]: `sweep.values` is a single value: at least two"), "{error}");
}

#[test]
fn what_is_wrong_has_key_line_and_remedy() {
    let values = |over: &str, values: &str| format!("[sweep]\nover = \"{over}\"\nvalues = [{values}]\n{TWO}");
    check(
        "[sweep]\nover = \"rate\"\nvals = [1]",
        "line 5, column 1: unknown key `vals`, did you mean `values`?",
    );
    check(
        &values("los", "\"1%\""),
        "line 4, column 8: `los` cannot be swept: `body_bytes`, `rate`, `loss`, `delay` (or one way, `to_server.loss`), \
         `connections` or `settings.KNOB` is expected",
    );
    check(
        &values("rate", ""),
        "line 5, column 10: `sweep.values` is empty: at least two values are expected",
    );
    check(
        &values("rate", "\"30%\""),
        "line 5, column 10: `sweep.values` is a single value: at least two are expected; without a sweep a value is \
         written itself",
    );
    check(
        &values("loss", "\"1%\", \"0.5%\""),
        "line 5, column 17: `sweep.values[1]` is 0.5%: values rise; write them in order, each once",
    );
    check(
        &values("loss", "\"1%\", 2"),
        "line 5, column 17: `sweep.values[1]` is 2: a share of packets, \"0.2%\" or \"5%\", is expected",
    );
    check(
        &values("loss", "\"1%\", \"60%\""),
        "line 5, column 17: `sweep.values[1]` is 60%: up to 50% is possible, beyond it TCP gives up",
    );
    check(
        &values("rate", "\"30%\", 20000"),
        "line 5, column 18: `sweep.values[1]` is 20000: shares of capacity and rates per second have no axis in common; \
         write all in one unit",
    );
    check(
        &values("body_bytes", "64, \"4k\""),
        "line 5, column 15: `sweep.values[1]` is 4k: a whole number without a unit, such as 64, is expected",
    );
    check(
        &values("connections", "0, 5"),
        "line 5, column 11: `sweep.values[0]` is 0: 1 to 60000 is expected",
    );
    check(
        &values("rate", "0.5, 1"),
        "line 5, column 10: a value of a sweep is an integer, or a text with its unit: 64, \"30%\" or \"40ms\"",
    );
}

#[test]
fn a_sweep_has_what_it_sweeps_for_itself() {
    let sweep = |over: &str, values: &str| format!("sweep = {{ over = \"{over}\", values = [{values}] }}\n");
    let taken = "leave out one of the two";
    check(
        &format!("rates = [5]\n{}", sweep("rate", "5, 6")),
        &format!("line 4, column 18: `sweep.over` is rate: `rates` names other rates; {taken}"),
    );
    check(
        &format!("{}[workload]\nbody_bytes = [7]", sweep("body_bytes", "5, 6")),
        &format!(
            "line 3, column 18: `sweep.over` is body_bytes: `workload.body_bytes` names other sizes; {taken}"
        ),
    );
    check(
        &format!("{}{TWO}", sweep("settings.tcp_congestion_control", "5, 6")),
        &format!(
            "line 3, column 18: `sweep.over` is settings.tcp_congestion_control: the candidate `bbr` has a value of its own; \
             {taken}"
        ),
    );
    check(
        &sweep("loss", "\"1%\", \"2%\""),
        "line 3, column 18: `sweep.over` is loss: every candidate races at every value; say with [[candidates]] who",
    );
    check(
        &format!("{}[[candidates]]\ncni = \"a\"", sweep("loss", "\"1%\", \"2%\"")),
        "`candidates.name` is missing: a CNI configuration in a sweep needs a `name`",
    );
    check(
        &format!("{TWO}swept = {{ line = \"a\", at = 7 }}"),
        "`candidates.swept.at` is 7: a candidate has a place in a sweep, and there is no [sweep]",
    );
    check(
        &format!("{}{TWO}connections = 5\nswept = {{ line = \"a\", at = 7 }}", sweep("connections", "5, 6")),
        "`candidates.swept.at` is 7: it is none of `sweep.values`",
    );
    let many = (1..=40).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    check(
        &format!("{}{TWO}", sweep("connections", &many)),
        "line 3, column 42: `sweep.values` is a list of 40: with all of them `candidates` is a list of 80: 64 can stand at \
         the same time; give fewer values or candidates",
    );
    check(
        "candidates = [{ path = \"a\", connections = 5 }]",
        "`candidates.name` is missing: a candidate with connections of its own needs a `name`",
    );
}

/// A sweep over any of the things that can be swept, with values that rise.
fn sweeps() -> impl Strategy<Value = Sweep> {
    let overs =
        ["body_bytes", "rate", "rate%", "loss", "to_client.delay", "connections", "settings.server.initcwnd"];
    let values = prop::collection::btree_set(1_u32..=100, 2..12);
    (prop::sample::select(overs.to_vec()), values).prop_map(|(over, values)| {
        let value = |value: &u32| match over {
            "rate%" => SweepValue::Text(format!("{value}%")),
            "loss" => SweepValue::Text(format!("{}%", f64::from(*value) / 4.0)),
            "to_client.delay" => SweepValue::Text(format!("{value}ms")),
            _ => SweepValue::Number(i64::from(*value)),
        };
        let values = values.iter().map(value).collect();
        Sweep { over: over.trim_end_matches('%').parse().unwrap(), values }
    })
}

proptest! {
    #[test]
    fn a_sweep_is_written_as_it_was_read_whole_and_laid_out(sweep in sweeps(), paths in 1_usize..4) {
        let candidate = |path: usize| Candidate { path: format!("p{path}"), ..Candidate::default() };
        let experiment = Experiment {
            sweep: Some(sweep.clone()),
            candidates: (0..paths).map(candidate).collect(),
            ..Experiment::default()
        };
        experiment.validate().unwrap();
        let text = experiment.to_toml();
        prop_assert_eq!(&Experiment::from_toml(&text).unwrap(), &experiment, "{}", text);
        let laid = experiment.swept();
        let text = laid.to_toml();
        prop_assert_eq!(&Experiment::from_toml(&text).unwrap(), &laid, "{}", text);
        prop_assert_eq!(&laid.swept(), &laid);
        prop_assert_eq!(laid.quick().unwrap(), None);
        let json = serde_json::to_string(&laid).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Experiment>(&json).unwrap(), &laid);
        let points = match &sweep.over {
            Over::BodyBytes => laid.workload.body_bytes.len(),
            Over::Rate => laid.rates.len(),
            Over::Wire(..) | Over::Connections | Over::Setting(..) => laid.candidates.len() / paths,
        };
        prop_assert_eq!(points, sweep.values.len());
    }

    #[test]
    fn no_text_makes_it_panic(over in "[a-z._]{0,30}", values in prop::collection::vec("[0-9.a-z%]{0,6}", 0..4)) {
        let _refused = read(&format!("[sweep]\nover = \"{over}\"\nvalues = {values:?}\n{TWO}"));
    }
}
