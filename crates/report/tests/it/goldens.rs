use report::{Style, analyse, json, table};

use crate::made::eventful;

#[test]
fn the_table() {
    let summary = analyse(&eventful());
    insta::assert_snapshot!("table", table(&summary, Style { colour: false, width: 140 }));
    insta::assert_snapshot!("table_narrow", table(&summary, Style { colour: false, width: 80 }));
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let summary = analyse(&eventful());
    let of = |colour| table(&summary, Style { colour, width: 120 });
    let mut plain = of(true);
    assert!(plain.contains("\u{1b}[31m") && plain.contains("\u{1b}[1m") && !of(false).contains('\u{1b}'));
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, of(false));
}

#[test]
fn the_json() {
    insta::assert_snapshot!("json", json(&analyse(&eventful())));
}

#[test]
fn the_json_is_what_its_schema_says() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let whole = serde_json::to_value(analyse(&eventful())).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&whole)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    assert_eq!(errors, Vec::<String>::new());
    let mut empty = eventful();
    (empty.rounds, empty.end) = (vec![], None);
    assert!(validator.is_valid(&serde_json::to_value(analyse(&empty)).unwrap()));
    // The schema is strict: it allows no unknown field and requires every known one.
    let mut strange = whole.clone();
    strange["candidates"][0]["moon"] = true.into();
    assert!(!validator.is_valid(&strange));
    let mut poor = whole;
    poor["candidates"][2]["rates"][0].as_object_mut().unwrap().remove("verdict");
    assert!(!validator.is_valid(&poor));
}
