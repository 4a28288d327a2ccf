//! Races over several values of one quantity, and the lines drawn from them.

use record::{Experiment, RaceRecord, SweepValue, Transfer, WorkloadKind};
use report::{Summary, SweepSummary, SweptChart, analyse, html, json};

use crate::made::{Plan, Truth};

/// A race with a sweep, at the loads that the sweep makes.
fn race(contenders: Vec<Truth>, loads: Vec<Option<f64>>, asked: &str) -> RaceRecord {
    let mut race = Plan { loads, ..Plan::of(3, contenders) }.race();
    let experiment = Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{asked}")).unwrap().swept();
    let rounds = race.header.experiment.rounds;
    race.header.experiment = Experiment { rounds, ..experiment };
    race
}

/// Rates from 10 to 40 thousand, and the closed loop that every race has.
fn over_rates() -> RaceRecord {
    let contenders = vec![Truth::of("docker", 1.5), Truth::of("macvlan", 1.0)];
    let loads = vec![None, Some(10e3), Some(20e3), Some(40e3)];
    let mut race = race(contenders, loads, "sweep = { over = \"rate\", values = [10000, 20000, \"40k\"] }");
    race.loads.iter_mut().for_each(|load| load.of_capacity = None);
    race
}

/// Two candidates at two losses each. The higher loss halves what docker carries, and costs bbr a tenth.
fn over_loss() -> RaceRecord {
    let names = ["docker 0.1 %", "docker 4 %", "bbr 0.1 %", "bbr 4 %"];
    let contenders =
        names.iter().zip([1.0, 2.0, 1.0, 1.1]).map(|(name, factor)| Truth::of(name, factor)).collect();
    let mut race = race(
        contenders,
        vec![None],
        "workload.kind = \"tcp-stream\"\nsweep = { over = \"to_server.loss\", values = [\"0.1%\", \"4%\"] }\n\
         [[candidates]]\npath = \"docker\"\n[[candidates]]\npath = \"host\"\nname = \"bbr\"",
    );
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.carried = Some(Transfer { bytes: 1000 * trial.answered, objects_ns: None, packets: None });
    }
    race
}

fn swept(summary: &Summary) -> &SweepSummary {
    summary.sweep.as_ref().expect("there was a sweep")
}

/// The name, values and estimates of each line.
fn lines(chart: &SweptChart) -> Vec<(&str, Vec<f64>, Vec<f64>)> {
    let line = |line| {
        let line: &report::SweptLine = line;
        let part = |part: fn(&report::SweptPoint) -> f64| line.points.iter().map(part).collect();
        (line.name.as_str(), part(|point| point.value), part(|point| point.figure.estimate))
    };
    chart.lines.iter().map(line).collect()
}

#[test]
fn rates_are_a_line_of_each_data_path_with_the_figures_of_the_tables() {
    let summary = analyse(&over_rates());
    let sweep = swept(&summary);
    let kinds: Vec<_> =
        sweep.charts.iter().map(|chart| (chart.statistic, chart.unit, chart.body_bytes)).collect();
    assert_eq!(
        kinds,
        [("p99", "ns", Some(100)), ("p50", "ns", Some(100))],
        "the closed loop is on no axis of rates"
    );
    let p99 = lines(&sweep.charts[0]);
    assert_eq!(
        p99.iter().map(|line| line.0).collect::<Vec<_>>(),
        ["host", "host again", "docker", "macvlan"]
    );
    for (index, (name, values, estimates)) in p99.iter().enumerate() {
        assert_eq!(values, &[10e3, 20e3, 40e3], "{name}");
        let rates = summary.candidates[index].rates.iter().skip(1);
        for (estimate, rate) in estimates.iter().zip(rates) {
            let table = rate.response_ns.p99.unwrap() as f64;
            assert!((estimate / table - 1.0).abs() < 2e-3, "{name}: {estimate} beside {table}");
        }
    }
    for point in sweep.charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points) {
        let figure = point.figure;
        assert!(
            figure.low.unwrap() < figure.estimate && figure.estimate < figure.high.unwrap(),
            "{figure:?}"
        );
    }
    assert!(sweep.charts.iter().all(|chart| chart.levels.is_empty()));
}

#[test]
fn candidates_of_a_sweep_are_lines_and_the_reference_a_level() {
    let summary = analyse(&over_loss());
    let sweep = swept(&summary);
    assert_eq!((sweep.over.as_str(), sweep.unit, sweep.charts.len()), ("to_server.loss", "% lost", 1));
    let chart = &sweep.charts[0];
    let lines = lines(chart);
    assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), ["docker", "bbr"]);
    assert!(lines.iter().all(|(_, values, _)| values == &[0.1, 4.0]));
    let fall = |line: usize| lines[line].2[0] / lines[line].2[1];
    assert!((1.9..2.1).contains(&fall(0)) && (1.05..1.15).contains(&fall(1)), "{lines:?}");
    let host = chart.levels.iter().find(|level| level.candidate == "host").unwrap();
    let carried = summary.candidates[0].rates[0].carried.unwrap().mbit_per_s.unwrap();
    assert!((host.figure.estimate / carried - 1.0).abs() < 1e-9, "{host:?}");
    assert_eq!(chart.levels.len(), 2);
    assert_eq!(summary.experiment.workload.kind, WorkloadKind::TcpStream);
}

/// Whatever the order of candidates and loads in a record, lines go from the smallest value to the largest.
#[test]
fn points_are_in_the_order_of_the_axis() {
    let mut race = over_loss();
    race.header.experiment.candidates.reverse();
    let summary = analyse(&race);
    let lines_of_chart = lines(&swept(&summary).charts[0]);
    assert_eq!(lines_of_chart[0].0, "bbr");
    assert!(lines_of_chart.iter().all(|(_, values, _)| values == &[0.1, 4.0]), "{lines_of_chart:?}");
    let mut race = over_rates();
    race.loads.reverse();
    let last = race.loads.len() - 1;
    race.rounds
        .iter_mut()
        .flat_map(|round| &mut round.trials)
        .for_each(|trial| trial.load = last - trial.load);
    let summary = analyse(&race);
    let values = lines(&swept(&summary).charts[0]).into_iter().map(|line| line.1).collect::<Vec<_>>();
    assert!(values.iter().all(|values| values == &[10e3, 20e3, 40e3]), "{values:?}");
}

#[test]
fn a_point_without_a_trial_that_counts_is_absent() {
    let mut race = over_rates();
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        if (trial.entrant, trial.load) == (2, 2) {
            trial.void = Some(record::Void::ClientBusy { busy_permille: 990 });
        }
    }
    let summary = analyse(&race);
    let lines_of_chart = lines(&swept(&summary).charts[0]);
    assert_eq!(lines_of_chart[2].1, [10e3, 40e3]);
    assert!(html::page(&summary).contains("<td>–</td>"));
}

#[test]
fn one_round_has_figures_without_intervals() {
    let mut race = over_loss();
    race.rounds.truncate(1);
    let summary = analyse(&race);
    let points =
        || swept(&summary).charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points);
    assert!(points().count() == 4 && points().all(|point| point.figure.low.is_none()));
    assert!(
        !html::page(&summary)
            .split_once("id=\"sweep\"")
            .unwrap()
            .1
            .split_once("</section>")
            .unwrap()
            .0
            .contains("class=\"whisker\"")
    );
}

#[test]
fn a_value_that_is_no_figure_draws_nothing() {
    let mut race = over_loss();
    race.header.experiment.sweep.as_mut().unwrap().values[0] = SweepValue::Text("much".to_owned());
    let summary = analyse(&race);
    assert_eq!(summary.sweep, None);
    assert!(!html::page(&summary).contains("id=\"sweep\""));
}

/// The coordinates of the elements of a class in the wide drawings of the sweep.
fn paths(page: &str, class: &str) -> Vec<Vec<(f64, f64)>> {
    let section = page.split_once("id=\"sweep\"").unwrap().1.split_once("</section>").unwrap().0;
    let wide =
        section.split("<svg class=\"plot wide\"").skip(1).map(|svg| svg.split_once("</svg>").unwrap().0);
    let data = wide.flat_map(|svg| svg.split(&format!("class=\"{class}\" d=\"")).skip(1).collect::<Vec<_>>());
    data.map(|rest| {
        let numbers: Vec<f64> = rest
            .split_once('"')
            .unwrap()
            .0
            .split(['M', 'L', ' '])
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
    })
    .collect()
}

#[test]
fn the_page_draws_lines_to_the_right_and_whiskers_from_low_to_high() {
    let summary = analyse(&over_rates());
    let page = html::page(&summary);
    let lines = paths(&page, "line");
    assert_eq!(lines.len(), 2 * 4, "two statistics of four data paths");
    for line in &lines {
        assert_eq!(line.len(), 3);
        assert!(line.windows(2).all(|pair| pair[0].0 < pair[1].0), "{line:?}");
    }
    let whiskers = paths(&page, "whisker");
    assert_eq!(whiskers.len(), 2 * 4 * 3);
    for whisker in &whiskers {
        let [(x, low), (also, high), ..] = whisker[..] else { panic!("{whisker:?}") };
        assert!(x == also && low > high, "{whisker:?}");
        assert!(
            lines.iter().flatten().any(|point| (point.0 - x).abs() < 0.2 && (high..=low).contains(&point.1))
        );
    }
    assert!(
        page.contains(">10\u{202f}000</text>") && page.contains(">40\u{202f}000</text>"),
        "each value has its tick"
    );
    assert!(page.contains("<a href=\"#sweep\">Over load</a>") && page.contains("requests/s asked for"));
    let loss = html::page(&analyse(&over_loss()));
    assert!(loss.contains("Over packet loss") && loss.contains("% of packets lost on the way to the server"));
    assert!(loss.contains("class=\"curve ref level\"") && loss.contains("host again "));
}

#[test]
fn the_json_has_every_point() {
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let of = |race: &RaceRecord| -> serde_json::Value {
        let value = serde_json::from_str(&json(&analyse(race))).unwrap();
        let against: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert_eq!(against, Vec::<String>::new());
        value
    };
    let point = &of(&over_loss())["sweep"]["charts"][0]["lines"][1]["points"][1];
    assert_eq!((point["candidate"].as_str(), point["value"].as_f64()), (Some("bbr 4 %"), Some(4.0)));
    let part = |name: &str| point[name].as_f64().unwrap();
    assert!(part("low") < part("estimate") && part("estimate") < part("high"), "{point}");
    let mut strange = of(&over_rates());
    assert_eq!(strange["experiment"]["sweep"]["over"], "rate");
    strange["sweep"]["charts"][0]["lines"][0]["points"][0]["moon"] = true.into();
    assert!(!validator.is_valid(&strange));
    assert!(of(&crate::made::eventful()).get("sweep").is_none());
}

/// Datagrams at rates are judged by what arrives, and have no closed loop.
#[test]
fn rates_of_datagrams_are_an_axis_of_what_arrives() {
    let asked = "workload.kind = \"udp-stream\"\nsweep = { over = \"rate\", values = [10000, 40000] }";
    let mut race = race(vec![Truth::of("docker", 1.5)], vec![Some(10e3), Some(40e3)], asked);
    race.loads.iter_mut().for_each(|load| load.of_capacity = None);
    let summary = analyse(&race);
    let chart = &swept(&summary).charts[0];
    assert_eq!((swept(&summary).charts.len(), chart.statistic, chart.unit), (1, "packets/s", "packets/s"));
    assert!(lines(chart).iter().all(|(_, values, _)| values == &[10e3, 40e3]));
    let page = html::page(&summary);
    let section = page.split_once("id=\"sweep\"").unwrap().1.split_once("</section>").unwrap().0;
    assert!(section.contains("packets/s asked for") && !section.contains("no rate limit"));
}

/// Frames have sizes, and are judged by the CPU time of one.
#[test]
fn sizes_of_frames_are_an_axis_of_packets_a_second_of_cpu_time() {
    let asked = "workload.kind = \"packets\"\nsweep = { over = \"body_bytes\", values = [64, 1000] }";
    let mut race = race(vec![Truth::of("docker", 1.5)], vec![None, None], asked);
    for (load, bytes) in race.loads.iter_mut().zip([64, 1000]) {
        load.body_bytes = bytes;
    }
    let summary = analyse(&race);
    let chart = &swept(&summary).charts[0];
    assert_eq!((chart.statistic, chart.unit), ("packets/CPU s", "packets/CPU s"));
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let value = serde_json::from_str(&json(&summary)).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

/// Slices of at least 1,000 requests have a p99 each.
#[test]
fn the_typical_p99_of_long_slices_is_drawn_between_p99_and_p50() {
    let statistics = |race: &RaceRecord| -> Vec<&str> {
        swept(&analyse(race)).charts.iter().map(|chart| chart.statistic).collect()
    };
    assert_eq!(statistics(&over_rates()), ["p99", "p50"]);
    let mut long = over_rates();
    long.rounds =
        Plan { loads: vec![None, Some(10e3), Some(20e3), Some(40e3)], samples: 1_000, ..long_plan() }
            .race()
            .rounds;
    assert_eq!(statistics(&long), ["p99", "typical p99", "p50"]);
    let summary = analyse(&long);
    let chart = &swept(&summary).charts[1];
    assert_eq!((chart.unit, chart.lines.len()), ("ns", 4));
    let docker = &chart.lines[2];
    for point in &docker.points {
        let rate =
            &summary.candidates[2].rates.iter().find(|rate| rate.requested_rps == Some(point.value)).unwrap();
        assert_eq!(Some(point.figure.estimate), rate.typical_p99_ns);
        assert!(point.figure.low.unwrap() < point.figure.estimate);
    }
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    assert!(jsonschema::is_valid(&schema, &serde_json::from_str(&json(&summary)).unwrap()));
    let page = html::page(&summary);
    assert_eq!(paths(&page, "line").len(), 3 * 4);
    assert!(page.contains("<h3>typical p99 in µs") && docker.points.len() == 3);
}

fn long_plan() -> Plan {
    Plan::of(3, vec![Truth::of("docker", 1.5), Truth::of("macvlan", 1.0)])
}
