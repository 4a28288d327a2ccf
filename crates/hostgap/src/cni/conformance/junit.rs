//! The result as JUnit XML.

use std::fmt::Write;

use ::conformance::{Conformance, Outcome, Report, Subject};

use super::text;

pub(super) fn conformance(subject: &Subject, found: &Conformance) -> String {
    let count = |is_so: fn(&Outcome) -> bool| super::count(found, is_so);
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let suite = escaped(&format!("cni conformance {}", subject.program.display()));
    let (failures, errors, skipped) = (
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::Undecided { .. })),
        count(|outcome| matches!(outcome, Outcome::NotApplicable { .. })),
    );
    writeln!(
        text,
        "<testsuite name=\"{suite}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">",
        found.reports.len()
    )
    .expect("a String takes everything");
    found.reports.iter().for_each(|report| text += &case(report));
    text + "</testsuite>\n"
}

fn case(report: &Report) -> String {
    let name = format!("{}: {}", report.case.id, report.case.title);
    let group = report.case.id.split('-').next().unwrap_or_default();
    let open = format!("  <testcase classname=\"cni.{group}\" name=\"{}\"", escaped(&name));
    match &report.outcome {
        Outcome::Passed => format!("{open}/>\n"),
        Outcome::Failed(fault) => {
            let (why, text) = (escaped(&fault.why), escaped(&text::failure(report.case, fault)));
            format!("{open}>\n    <failure message=\"{why}\">{text}</failure>\n  </testcase>\n")
        }
        Outcome::NotApplicable { reason } => {
            format!("{open}>\n    <skipped message=\"{}\"/>\n  </testcase>\n", escaped(reason))
        }
        Outcome::Undecided { reason } => {
            format!("{open}>\n    <error message=\"{}\"/>\n  </testcase>\n", escaped(reason))
        }
    }
}

/// As text and as an attribute of XML, without signs that XML cannot have.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(sign),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(escaped("a<b>&\"c\"\u{1b}[0m\n"), "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}[0m\n");
    }

    #[test]
    fn an_outcome_has_its_element() {
        let report = |outcome| Report { case: ::conformance::find("del-twice")[0], outcome };
        assert!(case(&report(Outcome::Passed)).ends_with("a second time\"/>\n"));
        let text = case(&report(Outcome::NotApplicable { reason: "no \"x\"".to_owned() }));
        assert!(
            text.contains("classname=\"cni.del\"")
                && text.contains("<skipped message=\"no &quot;x&quot;\"/>"),
            "{text}"
        );
    }
}
