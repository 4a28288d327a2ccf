//! The page as a whole: it can be parsed, is self-contained, has tables for its drawings, and no text of a record
//! becomes markup.

use std::collections::BTreeMap;

use super::{STYLE, fixture, made_late, page, sampled, search_page};
use crate::Summary;
use crate::search::fixture as searches;

/// A tag of the page with its attributes, unescaped.
#[derive(Debug)]
struct Tag {
    name: String,
    attrs: BTreeMap<String, String>,
    /// The text up to the next tag.
    text: String,
    closes: bool,
}

/// All scenes under which the page must be good.
fn scenes() -> [(&'static str, Summary); 13] {
    [
        ("race", fixture::race()),
        ("same-node", fixture::same_node()),
        ("host-only", fixture::host_only()),
        ("one-contender", fixture::one_contender()),
        ("crowd", fixture::crowd()),
        ("short", fixture::short()),
        ("interrupted", fixture::interrupted()),
        ("hostile", fixture::hostile()),
        ("profiled", sampled::race()),
        ("late", made_late::race()),
        ("swept", fixture::swept()),
        ("by-cpu", fixture::by_cpu()),
        ("course", fixture::course()),
    ]
}

/// The pages of all scenes, and those of searches.
fn pages() -> Vec<(&'static str, String)> {
    let races = scenes().map(|(scene, summary)| (scene, page(&summary)));
    let found = [
        ("search", searches::better()),
        ("search-nothing", searches::nothing()),
        ("search-interrupted", searches::interrupted()),
        ("search-hostile", searches::hostile()),
    ];
    races.into_iter().chain(found.map(|(scene, search)| (scene, search_page(&search)))).collect()
}

fn unescaped(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    named.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The tags between the body's begin and the script, which is ours and no markup.
fn tags(html: &str) -> Vec<Tag> {
    let body = html.split_once("<body>").unwrap().1.split_once("<script>").unwrap().0;
    body.split('<').skip(1).map(tag).collect()
}

fn tag(piece: &str) -> Tag {
    let (inside, text) = piece.split_once('>').unwrap_or_else(|| panic!("no end of a tag in {piece:?}"));
    let closes = inside.starts_with('/');
    let inside = inside.trim_matches('/');
    let (name, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
    let mut attrs = BTreeMap::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no value in {piece:?}"));
        let (value, after) =
            after.split_once('"').unwrap_or_else(|| panic!("no end of a value in {piece:?}"));
        assert!(attrs.insert(key.to_owned(), unescaped(value)).is_none(), "{key} twice in {piece:?}");
        rest = after.trim_start();
    }
    Tag { name: name.to_owned(), attrs, text: unescaped(text), closes }
}

#[test]
fn the_page_says_where_the_pods_stood() {
    let [two, one] = [fixture::race(), fixture::same_node()].map(|summary| page(&summary));
    assert!(two.contains("joined by a wire") && !two.contains("one node"));
    assert!(one.contains("Both pods are on one node") && one.contains("placement = &quot;same_node&quot;"));
    assert!(!one.contains("wire (veth)") && !two.contains("same_node"));
}

#[test]
fn tags_are_balanced_in_every_scene() {
    for (scene, html) in pages() {
        let body = html.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
        let mut open: Vec<&str> = Vec::new();
        for piece in body.split('<').skip(1) {
            let (inside, _) = piece.split_once('>').unwrap();
            assert!(!inside.contains('<'), "{scene}: {piece:?}");
            if let Some(name) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{scene}: closed at {piece:?}");
            } else if !inside.ends_with('/') {
                open.push(inside.split(' ').next().unwrap());
            }
        }
        assert!(open.is_empty(), "{scene}: {open:?}");
    }
}

#[test]
fn places_in_the_page_exist_once() {
    for (scene, html) in pages() {
        let tags = tags(&html);
        let mut ids: Vec<&String> = tags.iter().filter_map(|tag| tag.attrs.get("id")).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{scene}: an id stands twice");
        for place in tags.iter().filter_map(|tag| tag.attrs.get("href")) {
            let name =
                place.strip_prefix('#').unwrap_or_else(|| panic!("{scene}: {place} leads out of the page"));
            assert!(ids.iter().any(|id| *id == name), "{scene}: {place} leads nowhere");
        }
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    for (scene, html) in pages() {
        for tag in tags(&html) {
            assert!(
                !["img", "link", "iframe", "object", "image", "use"].contains(&&*tag.name),
                "{scene}: {tag:?}"
            );
            assert!(!tag.attrs.contains_key("src") && !tag.attrs.contains_key("style"), "{scene}: {tag:?}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        assert_eq!(html.matches("<script").count(), 1, "{scene}");
    }
    assert!(!page(&fixture::race()).contains("http:") && !page(&fixture::race()).contains("https:"));
}

#[test]
fn texts_of_a_record_stay_texts() {
    for html in [page(&fixture::hostile()), search_page(&searches::hostile())] {
        assert!(!html.contains("<script src"));
        assert!(!html.contains(|c: char| c != '\n' && crate::terminal::is_obeyed(c)));
        assert!(html.contains("\\u001b\\u0000\\u009b\\u007f\\u202e\\u2066"));
        assert!(
            html.contains("&lt;/script&gt;&lt;/style&gt;&lt;script src=&quot;http://x.example/&quot;&gt;")
        );
        assert_eq!(html.matches("</style>").count(), 1);
        assert!(!html.contains("NaN") && !html.contains("inf\""), "what is no number is not written");
    }
}

#[test]
fn every_mark_stands_in_a_table() {
    for (scene, html) in pages() {
        let tags = tags(&html);
        let cells: BTreeMap<&String, &String> = tags
            .iter()
            .filter(|tag| tag.name == "td" && !tag.closes)
            .filter_map(|tag| Some((tag.attrs.get("data-f")?, &tag.text)))
            .collect();
        let marks: Vec<&Tag> =
            tags.iter().filter(|tag| tag.name == "g" && tag.attrs.contains_key("data-f")).collect();
        for mark in &marks {
            let (key, value) = (&mark.attrs["data-f"], &mark.attrs["data-v"]);
            assert_eq!(cells.get(key), Some(&value), "{scene}: {key}");
        }
        // Each is drawn twice: for wide and for narrow windows.
        assert_eq!(marks.len(), 2 * cells.len(), "{scene}: a table names figures that are not drawn");
    }
}

#[test]
fn every_point_of_a_course_stands_in_its_tables() {
    let html = page(&fixture::course());
    let section = html.split_once("id=\"timeline\"").unwrap().1.split_once("</section>").unwrap().0;
    let mut loads = 0;
    for part in section.split("<h3>").skip(1) {
        let wide = part.split_once("</svg>").unwrap().0;
        let lines =
            wide.split("<g class=\"curve thin").skip(1).flat_map(|group| group.split(" d=\"").skip(1));
        let lines = lines.map(|rest| rest.split_once('"').unwrap().0.split([' ', 'L']).count() / 2);
        let tables = part.split_once("<details").unwrap().1;
        let filled = tables.matches("<td>").count() - tables.matches("<td></td>").count();
        assert_eq!(lines.sum::<usize>(), filled, "load {loads}");
        loads += 1;
    }
    assert_eq!(loads, 3);
}

#[test]
fn a_default_race_draws_all_it_has() {
    let html = page(&fixture::race());
    let tags = tags(&html);
    let marks = tags.iter().filter(|tag| tag.name == "g" && tag.attrs.contains_key("data-f")).count();
    // Eight with a ratio × (three loads × three statistics: p50, p99, and throughput or typical p99), nine bars of
    // capacity, nine × three loads × two nodes × total and share.
    assert_eq!(marks, 2 * (8 * 3 * 3 + 9 + 9 * 3 * 2 * 2));
    assert!(html.len() < 320_000, "{} bytes", html.len());
}

#[test]
fn every_point_of_a_curve_stands_in_its_table() {
    for (scene, summary) in scenes() {
        let html = page(&summary);
        for load in 0..summary.loads.len() {
            let Some((_, after)) = html.split_once(&format!("<details data-curve=\"{load}\">")) else {
                assert!(
                    summary.candidates.iter().all(|c| c.rates.get(load).is_none_or(|r| r.curve.is_empty()))
                );
                continue;
            };
            let table = after.split_once("</details>").unwrap().0;
            let filled = table.matches("<td>").count() - table.matches("<td></td>").count();
            assert_eq!(filled, drawn_points(&html, load), "{scene}: load {load}");
        }
    }
}

/// Points of the wide plot of a load, counted in the paths themselves.
fn drawn_points(html: &str, load: usize) -> usize {
    let curves = html.split_once("id=\"curves\"").unwrap().1;
    let plot =
        curves.split("<svg class=\"plot wide\"").nth(load + 1).unwrap().split_once("</svg>").unwrap().0;
    let paths = plot.split("class=\"line\" d=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0);
    paths.map(|data| data.split([' ', 'L']).count().div_ceil(2)).sum()
}

#[test]
fn late_answers_have_a_curve_a_table_and_their_time_outs_a_name() {
    let (plain, html) = (page(&fixture::race()), page(&made_late::race()));
    assert!(!plain.contains("id=\"late\""));
    let section = html.split_once("id=\"late\"").unwrap().1.split_once("</section>").unwrap().0;
    for word in
        ["retransmission time-out", "tail loss probe", "long softirq", "queue at the server", "unknown"]
    {
        assert!(section.contains(&format!("</i>{word}</span>")), "{word} is in the legend");
    }
    assert_eq!(section.matches("<svg").count(), 2, "one for wide windows, one for narrow ones");
    assert!(section.contains("30 answers took 190 ms or more, 30 of them because of TCP"), "{section}");
    assert!(section.contains("about 200, 600 or 1400 ms"));
    let paths = made_late::race().late[0].candidates.len();
    assert_eq!(section.matches(">p99.9<").count(), paths * 3, "on the axis of each panel, and in the table");
}

#[test]
fn a_profile_has_a_figure_a_table_and_a_graph_of_each() {
    let (plain, html) = (page(&fixture::race()), page(&sampled::race()));
    assert!(!plain.contains("flame") && !plain.contains("id=\"profile\""));
    let section = html.split_once("id=\"profile\"").unwrap().1.split_once("</section>").unwrap().0;
    assert_eq!(section.matches("<div class=\"flame by-part\">").count(), 1, "of the host");
    assert_eq!(section.matches("<div class=\"flame by-difference\">").count(), 8, "of all others");
    let docker =
        section.split_once("Flame graph of docker</title>").unwrap().1.split_once("</div>").unwrap().0;
    assert!(docker.contains("f x-netfilter more") && docker.contains(">nf_conntrack_in</text>"));
    assert!(docker.contains("f x-scheduler less"), "what is less has another colour");
    // Differences within the noise are in parentheses in the table, and have a bar without a figure.
    assert!(section.contains(">(+0.") && section.contains(">(−0."));
    let brackets = section.matches("data-v=\"(").count();
    let (bars, figures) = (section.matches("data-v=").count(), section.matches("class=\"value\"").count());
    assert!(
        brackets > 0 && bars - brackets == figures,
        "{bars} bars, {brackets} in brackets, {figures} figures"
    );
}

#[test]
fn stacks_of_a_record_stay_texts() {
    let mut summary = sampled::race();
    let evil = "other:</script><b>&quot;;</title>".to_owned();
    summary.profiles[0].candidates[0].stacks = vec![(evil, 10)];
    let html = page(&summary);
    assert!(!html.contains("<b>&quot;") && html.contains("other:&lt;/script&gt;&lt;b&gt;&amp;quot"));
}

#[test]
fn what_went_wrong_is_said() {
    let interrupted = page(&fixture::interrupted());
    assert!(interrupted.contains("the race was interrupted") && interrupted.contains("differs from itself"));
    assert!(interrupted.contains("4 × the client&#39;s CPU was 99 % busy"));
    assert!(page(&fixture::short()).contains("too few samples"));
    let race = page(&fixture::race());
    assert!(race.contains("could not run here: kernel module ipvlan is missing"));
    assert!(race.contains("Machine Zone 2015"));
}

#[test]
fn a_search_shows_every_stage_and_what_became_of_each_arm() {
    let html = search_page(&searches::better());
    for id in ["answer", "calibration-1", "race-2", "confirmation-3", "ablation-4", "tried", "machine"] {
        assert!(html.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    let race = html.split_once("id=\"race-2\"").unwrap().1.split_once("</section>").unwrap().0;
    assert!(race.contains("round 1: 3 blocks") && race.contains("round 2: 5 blocks"));
    assert_eq!(race.matches(">raced</td>").count(), 4 + 2);
    assert!(race.contains("given up: it broke"));
    assert!(html.contains("tune.client.tcp_rmem = &quot;4096 8192 16384&quot;"));
    assert!(html.contains("cannot be set here: this kernel has no fq"));
    assert!(html.contains("Left out, because no effect was proven: server.tcp_frto=0."));
    // Of a time less is better, of a throughput more.
    let confirmed = |html: &str, class: &str| {
        let section = html.split_once("id=\"confirmation-3\"").unwrap().1.split_once("</section>").unwrap().0;
        section.contains(class)
    };
    assert!(confirmed(&html, "v-better") && !confirmed(&html, "v-worse"));
    let of_throughput = record::SearchRecord { objective: "throughput".to_owned(), ..searches::better() };
    let html = search_page(&of_throughput);
    assert!(confirmed(&html, "v-worse") && !confirmed(&html, "v-better"));
    let nothing = search_page(&searches::nothing());
    assert!(nothing.contains("Nothing helps: ") && !nothing.contains("[[candidates]]"));
    assert!(search_page(&searches::interrupted()).contains("the search was interrupted"));
}

/// The colours of a block of variables.
fn colours(block: &str) -> BTreeMap<&str, [f64; 3]> {
    block
        .split(';')
        .filter_map(|declaration| declaration.rsplit_once("--")?.1.split_once(": #"))
        .map(|(name, hex)| {
            let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            (name, [part(0), part(2), part(4)])
        })
        .collect()
}

/// WCAG 2.1, "relative luminance".
fn luminance(colour: [f64; 3]) -> f64 {
    let linear = colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

/// WCAG 2.1, "contrast ratio".
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn texts_can_be_read_in_light_and_dark() {
    let blocks: Vec<&str> =
        STYLE.split(":root {").skip(1).take(2).map(|b| b.split_once('}').unwrap().0).collect();
    for (theme, block) in ["light", "dark"].iter().zip(blocks) {
        let colours = colours(block);
        let texts =
            ["ink", "dim", "link", "better", "worse", "same", "k0", "k1", "k2", "k3", "k4", "k5", "k6"];
        for (text, ground) in
            texts.iter().flat_map(|text| ["bg", "panel", "stripe"].map(|ground| (text, ground)))
        {
            let found = contrast(colours[text], colours[ground]);
            assert!(found >= 4.5, "{theme}: --{text} on --{ground} has a contrast of {found:.2}");
        }
        for (text, ground) in
            [("warn", "warn-bg"), ("ink", "pod"), ("dim", "pod"), ("ink", "test"), ("dim", "test")]
                .into_iter()
                .chain(["w1", "w2", "w3", "b1", "b2", "b3"].map(|step| ("ink", step)))
        {
            let found = contrast(colours[text], colours[ground]);
            assert!(found >= 4.5, "{theme}: --{text} on --{ground} has a contrast of {found:.2}");
        }
        let bars = contrast(colours["softirq"], colours["rest"]);
        assert!(bars >= 3.0, "{theme}: the parts of a bar have a contrast of {bars:.2}");
    }
}

/// With `HOSTGAP_PAGES` naming a directory, the scenes are written there, for inspection.
#[test]
fn scenes_differ() {
    let pages = pages();
    if let Some(dir) = std::env::var_os("HOSTGAP_PAGES") {
        for (scene, html) in &pages {
            std::fs::write(std::path::Path::new(&dir).join(format!("{scene}.html")), html).unwrap();
        }
    }
    for (index, (scene, html)) in pages.iter().enumerate() {
        assert!(pages[..index].iter().all(|(_, other)| other != html), "{scene} is like another scene");
    }
}

#[test]
fn names_in_flame_graphs_can_be_read() {
    let ink = colours("--x: #15181c")["x"];
    let fills: Vec<&str> = super::FLAME_STYLE.split("fill: #").skip(1).map(|rest| &rest[..6]).collect();
    let boxes: Vec<&&str> = fills.iter().filter(|fill| **fill != "15181c").collect();
    assert_eq!((fills.len() - boxes.len(), boxes.len()), (1, 16));
    for fill in boxes {
        let declaration = format!("--x: #{fill}");
        let found = contrast(ink, colours(&declaration)["x"]);
        assert!(found >= 4.5, "#{fill} has a contrast of {found:.2}");
    }
}

#[test]
fn every_part_of_a_cpu_s_bar_stands_in_its_table() {
    let html = page(&fixture::by_cpu());
    let section = html.split_once("<h4>Each CPU</h4>").unwrap().1.split_once("</table>").unwrap().0;
    let (drawn, table) = section.split_once("<table>").unwrap();
    let wide = drawn.split_once("</svg>").unwrap().0;
    let mut bars = 0;
    for bar in wide.split("<title>").skip(2) {
        let (name, parts) = bar.split_once("</title>").unwrap().0.rsplit_once(": ").unwrap();
        let row = table
            .split_once(&format!("<th scope=\"row\">{name}</th>"))
            .unwrap()
            .1
            .split_once("</tr>")
            .unwrap()
            .0;
        let figures: Vec<&str> = parts.split(", ").map(|part| part.rsplit_once(' ').unwrap().0).collect();
        let rects = bar.matches("<rect").count();
        assert_eq!(rects, figures.len(), "{bar}");
        assert!(
            figures.iter().all(|figure| row.contains(&format!("<td>{figure}</td>"))),
            "{name}: {parts} beside {row}"
        );
        bars += 1;
    }
    assert_eq!(bars, 9 * 10, "for nine data paths four CPUs of two nodes, and all of each");
}
