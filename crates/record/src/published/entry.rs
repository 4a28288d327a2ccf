//! A published figure in an experiment file: either complete, or the key of a built-in figure, which supplies its
//! value and unit and its source.

use serde::{Deserialize, Deserializer};

use super::{Direction, Metric, Published, PublishedFact, publications};
use crate::{RequestedRate, did_you_mean};

/// All figures of a list, those of a key for each entry that has one.
pub(crate) fn expanded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Published>, D::Error> {
    let entries = Vec::<Expanded>::deserialize(deserializer)?;
    Ok(entries.into_iter().flat_map(|entry| entry.0).collect())
}

/// What an entry stands for. It is an entry's own type so that an error names the entry's line.
#[derive(Deserialize)]
#[serde(try_from = "Entry")]
struct Expanded(Vec<Published>);

/// The keys of [`Published`], all of which a reference may leave out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(alias = "candidate")]
    path: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    what: Option<String>,
    #[serde(default)]
    value: Option<f64>,
    #[serde(default)]
    direction: Option<Direction>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    place: Option<String>,
    #[serde(default)]
    metric: Option<Metric>,
    #[serde(default)]
    against: Option<String>,
    #[serde(default)]
    unit: Option<String>,
    #[serde(default)]
    rate: Option<RequestedRate>,
    #[serde(default)]
    body_bytes: Option<u32>,
    #[serde(default)]
    rounded_to: Option<f64>,
    #[serde(default)]
    setting: Option<String>,
    #[serde(default)]
    not_comparable: String,
}

impl TryFrom<Entry> for Expanded {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Expanded, String> {
        match &entry.key {
            // With a value it is the entry of a record, which keeps what its race was compared with.
            Some(key) if entry.value.is_none() && entry.direction.is_none() => entry.of(key).map(Expanded),
            _ => Ok(Expanded(vec![entry.whole()])),
        }
    }
}

impl Entry {
    fn whole(self) -> Published {
        Published {
            candidate: self.path,
            what: self.what.unwrap_or_default(),
            value: self.value,
            source: self.source.unwrap_or_default(),
            direction: self.direction,
            key: self.key.unwrap_or_default(),
            place: self.place.unwrap_or_default(),
            metric: self.metric,
            against: self.against,
            unit: self.unit.unwrap_or_default(),
            rate: self.rate,
            body_bytes: self.body_bytes,
            rounded_to: self.rounded_to,
            setting: self.setting.unwrap_or_default(),
            not_comparable: self.not_comparable,
        }
    }

    /// The facts of a key, about the candidate and the load of this entry.
    fn of(&self, key: &str) -> Result<Vec<Published>, String> {
        let given = [
            ("what", self.what.is_some()),
            ("source", self.source.is_some()),
            ("place", self.place.is_some()),
            ("unit", self.unit.is_some()),
            ("rounded_to", self.rounded_to.is_some()),
            ("setting", self.setting.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            return Err(format!("`{name}` comes with the key `{key}`, and is not said again"));
        }
        let facts = publications::find(key);
        match (facts.as_slice(), self.metric) {
            ([], _) => {
                let near = did_you_mean(publications::nearest(key).map(|near| format!("`{near}`")));
                Err(format!("no published figure has the key `{key}`{near}"))
            }
            ([fact], Some(metric)) if fact.metric.is_some_and(|of| of != metric) => {
                Err(format!("`{key}` has no {}", metric.name()))
            }
            ([_, _, ..], Some(metric)) => {
                Err(format!("`{key}` are {} figures, of which {} can be but one", facts.len(), metric.name()))
            }
            _ => Ok(facts.into_iter().map(|fact| self.about(fact)).collect()),
        }
    }

    fn about(&self, fact: &PublishedFact) -> Published {
        Published {
            candidate: self.path.clone(),
            what: fact.what.clone(),
            value: fact.value,
            source: fact.source.to_owned(),
            direction: fact.direction,
            key: fact.key.clone(),
            place: fact.place.to_owned(),
            metric: fact.metric.or(self.metric),
            against: self.against.clone(),
            unit: fact.unit.to_owned(),
            rate: self.rate,
            body_bytes: self.body_bytes,
            rounded_to: fact.rounded_to,
            setting: fact.setting.to_owned(),
            not_comparable: self.not_comparable.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Direction, Experiment, Metric, Published, RequestedRate};

    fn read(published: &str) -> Result<Vec<Published>, String> {
        let text = format!("schema = 1\nname = \"x\"\nrates = [\"30%\"]\n[[published]]\n{published}");
        Experiment::from_toml(&text).map(|experiment| experiment.published).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(published: &str, expected: &str) {
        assert_eq!(read(published).unwrap_err(), expected);
    }

    #[test]
    fn a_key_brings_value_unit_and_source_along() {
        let row =
            read("path = 'a'\nkey = 'machine-zone/150k-350B/vxlan'\nrate = '30%'\nbody_bytes = 100").unwrap();
        let values: Vec<(Option<&str>, Option<f64>)> =
            row.iter().map(|figure| (figure.metric.map(Metric::name), figure.value)).collect();
        let expected =
            [("p95", 1.2), ("p99", 1.5), ("p99.5", 1.6), ("p99.99", 6.6), ("p99.999", 201.9), ("max", 405.3)];
        assert_eq!(values, expected.map(|(metric, value)| (Some(metric), Some(value))));
        let last = &row[4];
        assert_eq!((&*last.key, &*last.unit), ("machine-zone/150k-350B/vxlan/p99.999", "ms"));
        assert_eq!((last.rate, last.body_bytes), (Some(RequestedRate::OfCapacity(0.3)), Some(100)));
        assert!(
            last.source.starts_with("Machine Zone 2015") && last.place.contains("150,000 RPS"),
            "{last:?}"
        );
    }

    #[test]
    fn what_a_publication_has_no_metric_for_gets_one_from_the_entry() {
        let one = read("path = 'a'\nkey = 'hatena/iperf-after/all/%soft'\nmetric = 'cpu_softirq'").unwrap();
        assert_eq!((one[0].value, one[0].metric), (Some(23.0), Some(Metric::CpuSoftirq)));
        let read_alone = read("path = 'a'\nkey = 'hatena/web-after'").unwrap();
        assert_eq!((read_alone.len(), read_alone[0].metric), (17 * 9, None));
    }

    #[test]
    fn a_direction_is_one_of_each_of_its_metrics() {
        let key = "key = 'machine-zone/order/450k-350B/host-gw-below-aws-vpc'";
        let both = read(&format!("path = 'a'\nagainst = 'b'\n{key}\nrate = '30%'")).unwrap();
        let of = |figure: &Published| (figure.metric, figure.direction, figure.value);
        let lower = Some(Direction::Lower);
        assert_eq!(
            both.iter().map(of).collect::<Vec<_>>(),
            [(Some(Metric::P95), lower, None), (Some(Metric::P99), lower, None)]
        );
        let own = read("path = 'a'\nmetric = 'p99'\ndirection = 'higher'\nsource = 'x'").unwrap();
        assert_eq!((own[0].direction, own[0].value), (Some(Direction::Higher), None));
    }

    #[test]
    fn a_record_keeps_what_its_race_was_compared_with() {
        let old = "path = 'a'\nkey = 'machine-zone/150k-350B/vxlan/p95'\nvalue = 9.9\nmetric = 'p95'\nunit = 'ms'\nsource = 'x'";
        assert_eq!(read(old).unwrap()[0].value, Some(9.9));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest() {
        check(
            "path = 'a'\nkey = 'machine-zone/150k-350B/vlxan'",
            "line 4, column 1: no published figure has the key `machine-zone/150k-350B/vlxan`, did you mean \
             `machine-zone/150k-350B/vxlan`?",
        );
        check("path = 'a'\nkey = 'q'", "line 4, column 1: no published figure has the key `q`");
    }

    #[test]
    fn what_comes_with_a_key_is_not_said_again() {
        check(
            "path = 'a'\nkey = 'aws/mtu'\nunit = 's'",
            "line 4, column 1: `unit` comes with the key `aws/mtu`, and is not said again",
        );
        check(
            "path = 'a'\nkey = 'aws/mtu'\nmetric = 'mean'",
            "line 4, column 1: `aws/mtu` are 6 figures, of which mean can be but one",
        );
        check(
            "path = 'a'\nkey = 'aws/mtu/mtu-9001/bandwidth'\nmetric = 'mean'",
            "line 4, column 1: `aws/mtu/mtu-9001/bandwidth` has no mean",
        );
    }

    #[test]
    fn a_figure_is_given_or_referred_to() {
        check(
            "path = 'a'\nmetric = 'mean'\nsource = 'x'",
            "`published` is a: a `value` is expected, a `direction`, or the `key` of a figure that comes with hostgap",
        );
        check(
            "path = 'a'\nmetric = 'mean'\nsource = 'x'\nvalue = 1\ndirection = 'lower'",
            "`published.value` is 1: a direction has no value; write two entries",
        );
        check(
            "path = 'a'\nwhat = 'b'\nsource = 'x'\ndirection = 'lower'",
            "`published.direction` is a: a direction takes a `metric` to be compared by",
        );
    }
}
