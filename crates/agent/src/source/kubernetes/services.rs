//! What is known of the cluster's Services at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plan::forwarding::ServiceAddress;

use super::change::Change;
use super::follow::News;
use super::service::{KeptService, KeptSlice};
use crate::lease::Services;

/// Services and EndpointSlices, and where calls are led, which follows from them.
#[derive(Debug, Default)]
pub(super) struct KnownServices {
    services: BTreeMap<String, KeptService>,
    /// By their Service, and then by their own names: a Service has several if it has many endpoints.
    slices: BTreeMap<String, BTreeMap<String, KeptSlice>>,
    /// The Service of each EndpointSlice.
    of_slice: BTreeMap<String, String>,
    led: Services,
    watched: Watches,
}

#[derive(Debug, Default)]
struct Watches {
    services: Watched,
    slices: Watched,
}

/// How the watch of a kind is.
#[derive(Debug, Default)]
struct Watched {
    /// Whether all were listed once.
    is_listed: bool,
    /// Why they cannot be watched.
    unreachable: Option<String>,
}

impl KnownServices {
    /// Where calls are led; `None`: not all that must be known for it was listed yet.
    pub(super) fn led(&self) -> Option<Services> {
        let Watches { services, slices } = &self.watched;
        (services.is_listed && slices.is_listed).then(|| self.without_rivals())
    }

    /// Where calls are led, each address and port once: an address of the cluster is its Service's alone, and one
    /// outside belongs to the first by name of those that claim it.
    fn without_rivals(&self) -> Services {
        let mut led = self.led.clone();
        let claiming: Vec<_> = self.services.iter().filter(|(_, service)| service.has_external()).collect();
        if claiming.is_empty() {
            return led;
        }
        let of_cluster = self.services.iter().flat_map(|(name, service)| {
            let all = self.led.get(name).into_iter().flat_map(|led| led.iter());
            all.map(|led| led.at).filter(|at| !service.shares(at.address))
        });
        let mut taken: BTreeSet<ServiceAddress> = of_cluster.collect();
        for (name, service) in claiming {
            let Some(entry) = led.get_mut(name) else { continue };
            let mut left = entry.as_ref().clone();
            left.retain(|led| !service.shares(led.at.address) || taken.insert(led.at));
            if left.len() < entry.len() {
                *entry = Arc::new(left);
            }
        }
        led
    }

    /// Why they are not known, or may have changed unseen.
    pub(super) fn unreachable(&self) -> Option<String> {
        let of = |watched: &Watched| match (&watched.unreachable, watched.is_listed) {
            (Some(why), _) => Some(why.clone()),
            (None, false) => Some("they were not listed yet".to_owned()),
            (None, true) => None,
        };
        of(&self.watched.services).or_else(|| of(&self.watched.slices))
    }

    /// Why they cannot be watched. That they were not listed yet is no trouble.
    pub(super) fn trouble(&self) -> Option<&str> {
        let Watches { services, slices } = &self.watched;
        services.unreachable.as_deref().or(slices.unreachable.as_deref())
    }

    /// Takes in what is new of Services.
    pub(super) fn take_services(&mut self, news: News<KeptService>) -> Change {
        match news {
            News::All(all) => {
                self.services = all.into_iter().collect();
                self.watched.services.is_listed = true;
                self.lead_all()
            }
            News::One(name, service) => {
                self.services.insert(name.clone(), service);
                self.lead(&name)
            }
            News::Gone(name) => {
                self.services.remove(&name);
                self.lead(&name)
            }
            News::Watched => self.watched.services.note(None),
            News::Unreachable(why) => self.watched.services.note(Some(why)),
        }
    }

    /// Takes in what is new of EndpointSlices.
    pub(super) fn take_slices(&mut self, news: News<KeptSlice>) -> Change {
        match news {
            News::All(all) => {
                self.slices.clear();
                self.of_slice.clear();
                for (name, slice) in all {
                    self.keep(name, slice);
                }
                self.watched.slices.is_listed = true;
                self.lead_all()
            }
            News::One(name, slice) => {
                let service = slice.service.clone();
                let before = self.forget(&name).filter(|before| *before != service);
                self.keep(name, slice);
                let changes =
                    [before.map_or(Change::Nothing, |before| self.lead(&before)), self.lead(&service)];
                if changes == [Change::Nothing; 2] { Change::Nothing } else { Change::Snapshot }
            }
            News::Gone(name) => self.forget(&name).map_or(Change::Nothing, |service| self.lead(&service)),
            News::Watched => self.watched.slices.note(None),
            News::Unreachable(why) => self.watched.slices.note(Some(why)),
        }
    }

    fn keep(&mut self, name: String, slice: KeptSlice) {
        self.of_slice.insert(name.clone(), slice.service.clone());
        self.slices.entry(slice.service.clone()).or_default().insert(name, slice);
    }

    /// Forgets an EndpointSlice. The Service that it was of.
    fn forget(&mut self, name: &str) -> Option<String> {
        let service = self.of_slice.remove(name)?;
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        Some(service)
    }

    /// Finds out again where calls of a Service are led.
    fn lead(&mut self, name: &str) -> Change {
        let Some(service) = self.services.get(name) else {
            return if self.led.remove(name).is_some() { Change::Snapshot } else { Change::Nothing };
        };
        let slices: Vec<&KeptSlice> = self.slices.get(name).into_iter().flat_map(BTreeMap::values).collect();
        let led = Arc::new(service.led(&slices));
        if self.led.get(name) == Some(&led) {
            return Change::Nothing;
        }
        self.led.insert(name.to_owned(), led);
        Change::Snapshot
    }

    fn lead_all(&mut self) -> Change {
        let names: BTreeSet<String> = self.services.keys().chain(self.led.keys()).cloned().collect();
        for name in names {
            self.lead(&name);
        }
        Change::Snapshot
    }
}

impl Watched {
    fn note(&mut self, unreachable: Option<String>) -> Change {
        let change = if self.unreachable == unreachable { Change::Nothing } else { Change::Snapshot };
        self.unreachable = unreachable;
        change
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::source::kubernetes::service::{EndpointSlice, Service};

    fn service(address: &str) -> KeptService {
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "resourceVersion": "1" },
            "spec": { "clusterIPs": [address], "ports": [{ "port": 80 }] }
        }))
        .unwrap();
        KeptService::of(service).unwrap()
    }

    fn slice(of: &str, address: &str) -> KeptSlice {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {
                "name": "x", "namespace": "default", "resourceVersion": "1",
                "labels": { "kubernetes.io/service-name": of }
            },
            "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [address] }]
        }))
        .unwrap();
        KeptSlice::of(slice, "own").unwrap()
    }

    fn named<K>(name: &str, kept: K) -> (String, K) {
        (format!("default/{name}"), kept)
    }

    fn one<K>(name: &str, kept: K) -> News<K> {
        News::One(format!("default/{name}"), kept)
    }

    fn backends(known: &KnownServices, of: &str) -> String {
        let led = known.led().unwrap();
        let backends = led[&format!("default/{of}")][0].backends.iter().map(ToString::to_string);
        backends.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_address_outside_is_led_for_the_first_that_claims_it_and_one_of_the_cluster_for_its_owner() {
        let claiming = |own: &str, claimed: &[&str]| {
            let service: Service = serde_json::from_value(json!({
                "metadata": { "name": "x", "namespace": "default", "resourceVersion": "1" },
                "spec": { "clusterIPs": [own], "ports": [{ "port": 80 }], "externalIPs": claimed }
            }))
            .unwrap();
            KeptService::of(service).unwrap()
        };
        let mut known = KnownServices::default();
        known.take_slices(News::All(vec![]));
        known.take_services(News::All(vec![
            named("a", service("10.96.0.1")),
            named("b", claiming("10.96.0.2", &["198.51.100.7", "10.96.0.1", "10.96.0.3"])),
            named("c", claiming("10.96.0.3", &["198.51.100.7", "198.51.100.8"])),
        ]));
        let led = |known: &KnownServices| -> Vec<String> {
            let all = known.led().unwrap();
            let of = |led: &Arc<Vec<_>>| -> Vec<String> {
                led.iter().map(|led: &plan::forwarding::Service| led.at.address.to_string()).collect()
            };
            all.values().map(|led| of(led).join(" ")).collect()
        };
        assert_eq!(led(&known), ["10.96.0.1", "10.96.0.2 198.51.100.7", "10.96.0.3 198.51.100.8"]);
        known.take_services(News::Gone("default/b".to_owned()));
        assert_eq!(led(&known), ["10.96.0.1", "10.96.0.3 198.51.100.7 198.51.100.8"]);
    }

    #[test]
    fn nothing_is_said_before_both_are_listed() {
        let mut known = KnownServices::default();
        known.take_services(News::All(vec![named("web", service("10.96.0.1"))]));
        known.take_services(News::Watched);
        assert_eq!((known.led(), known.trouble()), (None, None));
        assert_eq!(known.unreachable().as_deref(), Some("they were not listed yet"));
        known.take_slices(News::All(vec![named("x", slice("web", "10.244.1.2"))]));
        assert_eq!(backends(&known, "web"), "10.244.1.2:8080");
        assert_eq!(known.unreachable(), None);
        assert_eq!(known.take_slices(News::Unreachable("403".to_owned())), Change::Snapshot);
        assert_eq!((known.trouble(), backends(&known, "web").as_str()), (Some("403"), "10.244.1.2:8080"));
    }

    #[test]
    fn what_follows_from_both_changes_with_either() {
        let mut known = KnownServices::default();
        known.take_slices(News::All(vec![]));
        known.take_services(News::All(vec![]));
        // Endpoints may come before their Service.
        assert_eq!(known.take_slices(one("x", slice("web", "10.244.1.2"))), Change::Nothing);
        assert_eq!(known.take_services(one("web", service("10.96.0.1"))), Change::Snapshot);
        assert_eq!(backends(&known, "web"), "10.244.1.2:8080");
        assert_eq!(known.take_services(one("web", service("10.96.0.1"))), Change::Nothing);
        assert_eq!(known.take_slices(one("x", slice("web", "10.244.1.2"))), Change::Nothing);
        assert_eq!(known.take_slices(one("y", slice("web", "10.244.1.3"))), Change::Snapshot);
        assert_eq!(backends(&known, "web"), "10.244.1.2:8080 10.244.1.3:8080");
        // A slice goes over to another Service.
        known.take_services(one("db", service("10.96.0.2")));
        assert_eq!(known.take_slices(one("y", slice("db", "10.244.1.3"))), Change::Snapshot);
        assert_eq!(
            (backends(&known, "web").as_str(), backends(&known, "db").as_str()),
            ("10.244.1.2:8080", "10.244.1.3:8080")
        );
        assert_eq!(known.take_slices(News::Gone("default/x".to_owned())), Change::Snapshot);
        assert_eq!(known.take_slices(News::Gone("default/x".to_owned())), Change::Nothing);
        assert_eq!(backends(&known, "web"), "");
        assert_eq!(known.take_services(News::Gone("default/web".to_owned())), Change::Snapshot);
        // A list is whole.
        known.take_services(News::All(vec![named("web", service("10.96.0.3"))]));
        assert_eq!(known.led().unwrap().into_keys().collect::<Vec<_>>(), ["default/web"]);
    }
}
