//! Races over cards: how often these interrupted, and which CPU received what.

use record::{Card, CardCounts, RaceRecord};
use report::{Style, analyse};

use crate::made::{Plan, Truth};

/// A race in which one CPU takes all interrupts and packets, and in the candidate `spread` two share the packets. The
/// server's card interrupts for every second request, and in every other build for every fourth.
fn race() -> RaceRecord {
    let mut race = Plan { loads: vec![None], ..Plan::of(5, vec![Truth::of("spread", 1.0)]) }.race();
    race.header.experiment.underlay.card = Some(Card::Igb);
    for round in &mut race.rounds {
        let every = if round.build % 2 == 0 { 2 } else { 4 };
        for trial in &mut round.trials {
            let [two, three] = if trial.entrant == 2 { [1, 1] } else { [2, 0] };
            let packets = [(2, two), (3, three)].map(|(cpu, share)| (cpu, share * trial.answered));
            trial.cards = Some(CardCounts {
                client_interrupts: [].into(),
                server_interrupts: [(2, trial.answered / every)].into(),
                net_rx: [(2, trial.answered)].into(),
                packets: packets.into_iter().filter(|(_, count)| *count > 0).collect(),
            });
        }
    }
    race
}

#[test]
fn counts_of_cards_are_in_table_page_and_json() {
    let summary = analyse(&race());
    let counts = summary.candidates[2].rates[0].cards.as_ref().unwrap();
    let mean = counts.server_interrupts_per_request;
    let (value, low, high) = (mean.value.unwrap(), mean.low.unwrap(), mean.high.unwrap());
    assert!(0.25 < low && low < value && value < high && high < 0.6, "{mean:?}");
    assert_eq!(counts.packets_per_net_rx.value, Some(2.0));
    assert_eq!(
        (counts.client_interrupts_per_request.value, counts.client_interrupts_per_request.low),
        (Some(0.0), None)
    );
    let table = report::table(&summary, Style { colour: false, width: 140 });
    let means =
        table.lines().skip_while(|line| !line.contains("Interrupts of the cards")).collect::<Vec<_>>();
    assert!(
        means[0].contains("per request (95 % interval)") && means[1].contains("packets a NET_RX"),
        "{table}"
    );
    assert!(
        means[2].trim_start().starts_with("host ") && means[2].ends_with("2.00 (2.00 to 2.00)"),
        "{table}"
    );
    let shares = |name: &str| -> Vec<&str> {
        let from = means.iter().skip(5).position(|line| line.trim_start().starts_with(name)).unwrap() + 5;
        let packets = means[from..].iter().find(|line| line.trim_start().starts_with("packets")).unwrap();
        packets.split_ascii_whitespace().filter(|word| word.parse::<f64>().is_ok()).collect()
    };
    assert_eq!((shares("host "), shares("spread ")), (vec!["100", "0"], vec!["50", "50"]), "{table}");
    assert!(table.contains("times over emulated igb cards mean nothing"), "{table}");
    let page = report::html::page(&summary);
    assert!(page.contains("<h2>Interrupts and packets per request</h2>"), "the section");
    assert!(page.contains("spread, packets") && page.contains("href=\"#cards\""));
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let json: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    let against: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
    assert_eq!(against, Vec::<String>::new());
    assert_eq!(json["candidates"][2]["rates"][0]["cards"]["by_cpu"][1]["cpu"], 3);
}

#[test]
fn a_race_without_cards_says_nothing_of_them() {
    let mut race = race();
    race.header.experiment.underlay.card = None;
    race.rounds.iter_mut().flat_map(|round| &mut round.trials).for_each(|trial| trial.cards = None);
    let summary = analyse(&race);
    let table = report::table(&summary, Style { colour: false, width: 140 });
    assert!(!table.contains("Interrupts") && !table.contains("emulated"), "{table}");
    assert!(
        !report::html::page(&summary).contains("id=\"cards\"") && !report::json(&summary).contains("cards")
    );
}
