//! The page of a search for settings: the answer, each stage with its figures, what was tried, the machine.

use record::{SearchArm, SearchRatio, SearchRecord, SearchStage, SearchVerdict};

use super::markup::Markup;
use super::ratio::{domain, draw_whisker, tick_text};
use super::rows::{self, Panel};
use super::scale::LogScale;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::{machine, marks, text};
use crate::search::{
    NO_ANSWER, ONLY_STAGES, about, arms_of, candidate, halving, is_better_high, name, sentence,
};
use crate::{Ratio, Verdict};

/// Writes all that stands in the page.
pub(super) fn body(m: &mut Markup, search: &SearchRecord) {
    head(m, search);
    answer(m, search);
    for place in 0..search.stages.len() {
        stage(m, search, place);
    }
    tried(m, search);
    m.within("section", &[("id", "machine")], |m| {
        m.leaf("h2", &[], "Machine and load");
        m.within("div", &[("class", "pair")], |m| {
            machine::facts(m, "Machine", machine::of(&search.machine));
            machine::facts(m, "Load", load(search));
        });
    });
}

/// The title of a search's page.
pub(super) fn title(search: &SearchRecord) -> String {
    format!("{} of {}", search.objective, search.incumbent)
}

fn head(m: &mut Markup, search: &SearchRecord) {
    m.within("header", &[], |m| {
        m.leaf("h1", &[], &format!("Search for settings: {}", title(search)));
        let place = format!(
            "Linux {} · {} · hostgap {}",
            search.machine.kernel,
            text::date(search.started_unix_s),
            search.hostgap
        );
        m.leaf("p", &[("class", "where")], &place);
        let answer = search.answer.as_ref().map(sentence);
        let answer = answer.unwrap_or_else(|| NO_ANSWER.to_owned());
        m.leaf("p", &[("class", "verdict-sentence")], &answer);
        m.within("dl", &[("class", "facts")], |m| {
            for (name, figure, remark) in facts(search) {
                m.within("div", &[], |m| {
                    m.leaf("dt", &[], name);
                    m.within("dd", &[], |m| {
                        m.leaf("b", &[], &figure);
                        m.leaf("span", &[], &remark);
                    });
                });
            }
        });
        if search.answer.is_none() {
            m.within("ul", &[("class", "warnings")], |m| {
                m.leaf("li", &[], ONLY_STAGES);
            });
        }
    });
    m.within("nav", &[("aria-label", "Parts of this page")], |m| {
        let stages = search.stages.iter().enumerate();
        let stages = stages.map(|(place, stage)| (format!("#{}", id(stage, place)), heading(stage)));
        let first = [("#answer".to_owned(), "Answer")];
        let last = [("#tried", "Tried settings"), ("#machine", "Machine and load")];
        let last = last.map(|(place, name)| (place.to_owned(), name));
        for (place, name) in first.into_iter().chain(stages).chain(last) {
            m.leaf("a", &[("href", place.as_str())], name);
            m.text(" ");
        }
    });
}

fn facts(search: &SearchRecord) -> [(&'static str, String, String); 5] {
    let visits: Vec<_> = search.blocks.iter().flat_map(|block| &block.visits).collect();
    let void: u32 = visits.iter().map(|visit| visit.void).sum();
    let resolvable = search.answer.as_ref().and_then(|answer| answer.resolvable);
    let number = |count: usize| text::grouped(count as u64);
    let unknown = || "not known".to_owned();
    [
        ("blocks", number(search.blocks.len()), format!("of {} visits", number(visits.len()))),
        ("void slices", text::grouped(void.into()), "not counted".to_owned()),
        (
            "incumbent against itself",
            noise(search).map_or_else(unknown, |noise| format!("±{}", text::percent(noise))),
            "one visit against another".to_owned(),
        ),
        (
            "gain that a hold-out would prove",
            resolvable.map_or_else(unknown, text::percent),
            "in four of five searches".to_owned(),
        ),
        ("took", text::duration(search.wall_s), format!("of {}", text::duration(search.budget_s))),
    ]
}

/// The distance from 1 of the incumbent's interval against itself, in the last calibration.
fn noise(search: &SearchRecord) -> Option<f64> {
    let calibration = search.stages.iter().rfind(|stage| stage.name == "calibration")?;
    let ratio = calibration.arms.first()?.ratio?;
    let noise = (ratio.high - 1.0).abs().max((1.0 - ratio.low).abs());
    noise.is_finite().then_some(noise)
}

fn answer(m: &mut Markup, search: &SearchRecord) {
    m.within("section", &[("id", "answer")], |m| {
        m.leaf("h2", &[], "Answer");
        let Some(answer) = &search.answer else {
            return m.leaf("p", &[("class", "lead")], "There is none.");
        };
        match answer.verdict {
            SearchVerdict::Better => {
                m.leaf("p", &[("class", "lead")], "The smallest set of settings that keeps the gain, as a candidate of an experiment:");
                m.leaf("pre", &[], &candidate(search, &answer.tune));
            }
            SearchVerdict::NothingHelps => m.leaf(
                "p",
                &[("class", "lead")],
                "Keep the present settings: none has a gain that new blocks, which played no part in its choice, confirm.",
            ),
            SearchVerdict::NotSearched => m.leaf("p", &[("class", "lead")], "There is no answer."),
        }
        let of = |name: String, ratio: Option<SearchRatio>| Row {
            name,
            candidate: None,
            cells: vec![Cell::figure(figure(ratio))],
        };
        let mut rows: Vec<Row> =
            answer.ratio.map(|ratio| of(search.objective.clone(), Some(ratio))).into_iter().collect();
        let guards = search.guards.iter().zip(&answer.guards);
        rows.extend(guards.map(|(guard, ratio)| of(format!("{guard} (must not get worse)"), *ratio)));
        if !rows.is_empty() {
            let head = vec!["figure".to_owned(), "÷ the incumbent's (95 %)".to_owned()];
            Table { caption: "With it, on blocks that played no part in its choice", head, rows }.write(m);
        }
        if !answer.dropped.is_empty() {
            let dropped: Vec<String> =
                answer.dropped.iter().map(|place| search.options[*place].label()).collect();
            m.leaf("p", &[("class", "aside")], &format!("Left out, because no effect was proven: {}.", dropped.join(", ")));
        }
    });
}

fn figure(ratio: Option<SearchRatio>) -> String {
    ratio.map_or_else(|| text::NONE.to_owned(), |ratio| text::ratio(&plain(ratio)))
}

fn plain(ratio: SearchRatio) -> Ratio {
    Ratio { value: ratio.value, low: ratio.low, high: ratio.high }
}

/// Names of stages occur twice where a noisy calibration was repeated.
fn id(stage: &SearchStage, place: usize) -> String {
    format!("{}-{}", stage.name, place + 1)
}

fn heading(stage: &SearchStage) -> &'static str {
    match stage.name.as_str() {
        "calibration" => "Calibration",
        "screening" => "Screening",
        "race" => "Race",
        "confirmation" => "Confirmation",
        "ablation" => "Ablation",
        _ => "Recheck",
    }
}

fn stage(m: &mut Markup, search: &SearchRecord, place: usize) {
    let stage = &search.stages[place];
    m.within("section", &[("id", &id(stage, place))], |m| {
        m.leaf("h2", &[], &format!("{}: {}", heading(stage), about(stage)));
        m.leaf("p", &[("class", "lead")], &lead(search, stage));
        let arms = arms_of(stage, is_better_high(search));
        if arms.iter().any(|arm| plottable(arm).is_some()) {
            m.within("figure", &[], |m| {
                for frame in Frame::BOTH {
                    m.append(&draw(search, place, &arms, frame));
                }
            });
        }
        table(m, search, place, &arms);
    });
}

fn lead(search: &SearchRecord, stage: &SearchStage) -> String {
    let right = if is_better_high(search) { "more, which is better" } else { "worse" };
    let of = match stage.name.as_str() {
        "ablation" => {
            "the winner's figure ÷ its figure without an option; on the better side of 1 the option helps"
        }
        _ => "an arm's figure ÷ the incumbent's of the same block",
    };
    let blocks = text::grouped(stage.blocks.into());
    let ended = match stage.name.as_str() {
        "calibration" => " Its interval is the band behind all others.",
        "screening" => " Options that look good here enter the race; nothing is proven yet.",
        "race" => " The best of many idle options looks good too, so nothing is proven here.",
        "confirmation" => " These blocks played no part in the choice: their result counts.",
        _ => "",
    };
    format!("{blocks} blocks. Marks are {of}; right of 1 is {right}. Whiskers are 95 % intervals.{ended}")
}

/// What joins a figure of a drawing with the same one of a table.
fn key(stage: usize, row: usize) -> String {
    format!("stage.{stage}.{row}")
}

fn plottable(arm: &SearchArm) -> Option<Ratio> {
    let ratio = plain(arm.ratio.filter(|_| arm.broken.is_none())?);
    [ratio.low, ratio.value, ratio.high].iter().all(|part| part.is_finite() && *part > 0.0).then_some(ratio)
}

/// The verdict by the interval alone, without a noise floor.
fn verdict(ratio: &Ratio, better_high: bool) -> Verdict {
    match (ratio.low > 1.0, ratio.high < 1.0) {
        (true, _) if better_high => Verdict::Better,
        (_, true) if !better_high => Verdict::Better,
        (false, false) => Verdict::Indistinguishable,
        (true, _) | (_, true) => Verdict::Worse,
    }
}

/// What became of an arm.
fn fate(arm: &SearchArm) -> &'static str {
    match (&arm.broken, arm.kept) {
        (Some(_), _) => "given up",
        // The incumbent is there for comparison.
        (None, true) if !arm.arm.is_empty() => "kept",
        (None, _) => "",
    }
}

fn draw(search: &SearchRecord, place: usize, arms: &[&SearchArm], frame: Frame) -> Markup {
    let stage = &search.stages[place];
    let panel = match frame {
        Frame::Wide => Panel { left: 340.0, right: 1000.0, top: 0.0 },
        Frame::Narrow => Panel { left: 8.0, right: 372.0, top: 0.0 },
    };
    let ratios: Vec<Ratio> = arms.iter().filter_map(|arm| plottable(arm)).collect();
    let floor = noise(search).filter(|_| stage.name != "calibration");
    let scale = LogScale::new(domain(&ratios.iter().collect::<Vec<_>>(), floor), (panel.left, panel.right));
    let span = panel.span(frame, arms.len());
    let mut svg = Svg::new();
    if let Some(floor) = floor {
        let (from, to) = (scale.place(1.0 / (1.0 + floor)), scale.place(1.0 + floor));
        svg.rect("band", Rect { x: from, y: span.0, width: to - from, height: span.1 - span.0 });
    }
    panel.draw_title(&mut svg, &format!("{} as a ratio", search.objective));
    for tick in scale.ratio_ticks(46.0) {
        let class = if (tick - 1.0).abs() < 1e-9 { "one" } else { "grid" };
        rows::draw_tick(&mut svg, class, scale.place(tick), span, &tick_text(tick));
    }
    for (row, arm) in arms.iter().enumerate() {
        draw_arm(&mut svg, search, (place, row), arm, (frame, panel, &scale));
    }
    let desc = "Every figure is in the table below.";
    svg.finish(frame, Panel::height(frame, arms.len()), Caption { title: heading(stage), desc })
}

fn draw_arm(
    svg: &mut Svg,
    search: &SearchRecord,
    (place, row): (usize, usize),
    arm: &SearchArm,
    (frame, panel, scale): (Frame, Panel, &LogScale),
) {
    let y = panel.row(frame, row);
    let ratio = plottable(arm);
    let seen = ratio.as_ref().map(|ratio| verdict(ratio, is_better_high(search)));
    let called = name(arm, &search.stages[place], search);
    let value = ratio.as_ref().map_or_else(|| text::NONE.to_owned(), text::ratio);
    let key = key(place, row);
    let class = ("class", marks::verdict_class(seen));
    let drawn = [class, ("data-f", key.as_str()), ("data-v", value.as_str())];
    svg.group(&drawn[..if ratio.is_some() { 3 } else { 1 }], |svg| {
        svg.tooltip(&format!("{called}: {value}"));
        let class = if arm.kept { "name strong" } else { "name" };
        match frame {
            Frame::Wide => {
                svg.text(class, at(330.0, y + 4.5), Anchor::End, &marks::fitting(&called, 38));
                svg.text("verdict", at(1014.0, y + 4.5), Anchor::Start, fate(arm));
            }
            Frame::Narrow => {
                svg.text(class, at(panel.left, y - 13.0), Anchor::Start, &marks::fitting(&called, 38));
                svg.text("verdict", at(panel.right, y - 13.0), Anchor::End, fate(arm));
            }
        }
        match &ratio {
            Some(ratio) => {
                draw_whisker(svg, scale, ratio, y);
                marks::mark(svg, seen, at(scale.place(ratio.value), y));
            }
            None => svg.text("missing", at(scale.place(1.0) + 8.0, y + 4.0), Anchor::Start, "no figure"),
        }
    });
}

fn table(m: &mut Markup, search: &SearchRecord, place: usize, arms: &[&SearchArm]) {
    let stage = &search.stages[place];
    let rounds = if stage.name == "race" { halving(search, place) } else { Vec::new() };
    let mut head = vec!["arm".to_owned(), "ratio (95 %)".to_owned(), "blocks".to_owned()];
    let named = rounds.iter().enumerate();
    head.extend(named.map(|(at, round)| format!("round {}: {} blocks", at + 1, round.blocks)));
    head.push("outcome".to_owned());
    let row = |(row, arm): (usize, &&SearchArm)| {
        let blocks = arm.ratio.map(|ratio| text::grouped(ratio.blocks.into()));
        let ratio = match plottable(arm) {
            Some(_) => Cell::plotted(figure(arm.ratio), key(place, row)),
            None => Cell::figure(text::NONE.to_owned()),
        };
        let mut cells = vec![ratio, Cell::figure(blocks.unwrap_or_else(|| text::NONE.to_owned()))];
        let there = |there: bool| Cell::figure(if there { "raced" } else { "out" }.to_owned());
        cells.extend(rounds.iter().map(|round| there(round.arms.contains(&arm.arm))));
        cells.push(match &arm.broken {
            Some(why) => Cell::sentence(&format!("given up: {why}")),
            None => Cell::words(fate(arm)),
        });
        Row { name: name(arm, stage, search), candidate: None, cells }
    };
    let rows = arms.iter().enumerate().map(row).collect();
    Table { caption: &format!("{}, {}", heading(stage), search.objective), head, rows }.write(m);
}

fn tried(m: &mut Markup, search: &SearchRecord) {
    m.within("section", &[("id", "tried")], |m| {
        m.leaf("h2", &[], "Tried settings");
        let row = |option: &record::SearchOption| Row {
            name: option.label(),
            candidate: None,
            cells: vec![match option.unmet.as_slice() {
                [] => Cell::words("searched"),
                reasons => Cell::sentence(&format!("cannot be set here: {}", reasons.join("; "))),
            }],
        };
        let rows = search.options.iter().map(row).collect();
        let head = vec!["setting".to_owned(), String::new()];
        Table { caption: "Settings, each with its value", head, rows }.write(m);
    });
}

fn load(search: &SearchRecord) -> Vec<(String, String)> {
    let experiment = &search.experiment;
    let rate = search.rate_per_s.map(|rate| format!("{} requests per second", text::per_second(rate)));
    let rows = [
        ("incumbent", search.incumbent.clone()),
        ("objective", search.objective.clone()),
        ("guards", search.guards.join(", ")),
        ("workload", experiment.workload.kind.name().to_owned()),
        ("rate", rate.unwrap_or_else(|| "closed loop".to_owned())),
        ("connections", text::grouped(u64::from(experiment.workload.connections))),
        ("wire to the server", experiment.underlay.to_server().to_string()),
        ("wire to the client", experiment.underlay.to_client().to_string()),
        ("seed", search.seed.to_string()),
    ];
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
