//! Knobs with values: read, and turned into steps.

use linux::interrupts::{Interrupt, queue_of};
use linux::netlink::{MetricValue, RouteMetric};
use linux::{CpuSet, Qdisc, sysctl};
use plan::{
    Place, Plan, Queue, RssHash, SetDebug, SetIndirection, SetIrqCpus, SetLinkAttribute, SetLinkMtu,
    SetModule, SetNic, SetQueueCpus, SetQueueFlows, SetRootQdisc, SetRouteMetric, SetRssHash, SetSysctl,
    Step,
};
use record::RequestedValue;

use crate::kind::{Cpus, Value};
use crate::knob::{Knob, Lives, QueueFile};
use crate::{Nic, Site, all, notrack};

/// A knob and the value it is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Setting {
    pub knob: &'static Knob,
    /// The value, which the knob takes.
    pub value: Value,
    /// Where it is set: where the knob lives, or for congestion control also the routes, see [`Setting::by_route`].
    pub lives: Lives,
}

/// Why a text is no setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TuneError {
    /// The name belongs to no knob.
    #[error("there is no knob {knob:?}{}; `hostgap tune knobs` lists them", hint(.nearest.as_deref()))]
    Unknown {
        knob: String,
        /// The knob that is nearest in spelling, if one is near.
        nearest: Option<String>,
    },
    /// The knob is set under its own name and under the kernel's.
    #[error("{knob} is set twice, under two of its names")]
    Twice {
        /// The name of the knob.
        knob: String,
    },
    /// Newer kernels do not have the knob any more.
    #[error("{knob} cannot be set: {gone}; {instead}")]
    Obsolete {
        /// The name of the knob.
        knob: String,
        /// What became of it, in words.
        gone: String,
        /// What to do instead.
        instead: String,
    },
    /// The knob does not take the value.
    #[error("{knob} cannot be {value:?}: {why}")]
    Value {
        /// The name of the knob.
        knob: String,
        value: String,
        /// What a value of this knob must look like.
        why: String,
    },
    /// The value does not go with another setting of the same side.
    #[error("{knob} cannot be {value:?} beside {other}: {why}")]
    Contradiction {
        /// The name of the knob.
        knob: String,
        value: String,
        /// The other setting, with its value.
        other: String,
        /// What both would need.
        why: String,
    },
}

fn hint(nearest: Option<&str>) -> String {
    record::did_you_mean(nearest.map(|knob| format!("{knob:?}")))
}

impl Setting {
    /// Reads a value for a knob.
    ///
    /// # Errors
    /// The knob is gone, or does not take the value.
    pub fn read(knob: &'static Knob, value: &RequestedValue) -> Result<Setting, TuneError> {
        if let Lives::Nowhere { gone, instead } = knob.lives {
            return Err(TuneError::Obsolete {
                knob: knob.id.to_owned(),
                gone: gone.to_owned(),
                instead: instead.to_owned(),
            });
        }
        let read = knob.kind.read(value).map_err(|why| TuneError::Value {
            knob: knob.id.to_owned(),
            value: value.to_string(),
            why,
        })?;
        if knob.lives == Lives::Interrupts && read == Value::Cpus(Cpus::None) {
            let (knob, value) = (knob.id.to_owned(), value.to_string());
            return Err(TuneError::Value { knob, value, why: "some CPU must serve an interrupt".to_owned() });
        }
        Ok(Setting { knob, value: read, lives: knob.lives })
    }

    /// The equivalent setting on the routes to the other side, for settings that a namespace may not make but its
    /// routes may. An algorithm reserved by the machine can be the default only in its first namespace, but a route
    /// may name it (`tcp_set_default_congestion_control` and `ip_metrics_convert` in the kernel). `None` without such
    /// an equivalent.
    pub fn by_route(&self) -> Option<Setting> {
        match self.lives {
            Lives::Sysctl("net/ipv4/tcp_congestion_control") => {
                Some(Setting { lives: Lives::Route(RouteMetric::CongestionControl), ..self.clone() })
            }
            _ => None,
        }
    }

    /// The plan that makes the setting on one side. Empty for a route's property where no route leads to the other
    /// side.
    pub fn plan(&self, site: &Site) -> Plan {
        let mut plan = Plan::new();
        match self.lives {
            Lives::Sysctl(key) => plan.push(&site.process, self.write(key, site)),
            Lives::Machine(key) => plan.push(&Place::Host, self.write(key, site)),
            Lives::Route(metric) => {
                for (dst, link) in &site.routes {
                    let (dst, link, value) = (*dst, link.clone(), self.metric());
                    plan.push(&site.process, SetRouteMetric { dst, link, metric, value });
                }
            }
            Lives::Queue(file) => {
                self.queues(file, site).into_iter().for_each(|step| plan.push(&site.node, step));
            }
            Lives::RootQdisc => {
                let (link, qdisc) = (site.wire.clone(), self.qdisc());
                plan.push(&site.node, SetRootQdisc { link, qdisc });
            }
            Lives::Mtu => {
                plan.push(&site.node, SetLinkMtu { link: site.wire.clone(), mtu: self.number() });
            }
            Lives::Nic(parameters) => {
                for parameter in parameters {
                    let (link, parameter, value) = (site.wire.clone(), *parameter, self.number());
                    plan.push(&site.node, SetNic { link, parameter, value });
                }
            }
            Lives::Indirection => {
                let (link, queues) = (site.wire.clone(), self.number());
                plan.push(&site.node, SetIndirection { link, queues });
            }
            Lives::Rss(_) => {
                for hash in self.hashes() {
                    plan.push(&site.node, SetRssHash { link: site.wire.clone(), hash });
                }
            }
            Lives::Attribute(attribute) => {
                let (link, value) = (site.wire.clone(), self.number().into());
                plan.push(&site.node, SetLinkAttribute { link, attribute, value });
            }
            Lives::Notrack => {
                let port = u16::try_from(self.number()).expect("the table takes ports");
                let tables = match site.process == site.node {
                    true => notrack::served(port),
                    // Where packets are forwarded they are tracked, and not where the process is.
                    false => notrack::forwarded(port),
                };
                tables.into_iter().for_each(|table| plan.push(&site.node, Step::AddNftTable(table)));
            }
            // It is held and not set.
            Lives::CpuLatency => {}
            Lives::Debug(file) => {
                plan.push(&Place::Host, SetDebug { file, value: self.number().into() });
            }
            Lives::Module(parameter) => {
                plan.push(&Place::Host, SetModule { parameter, value: self.number().into() });
            }
            Lives::Interrupts => {
                self.interrupts(site).into_iter().for_each(|step| plan.push(&site.node, step));
            }
            Lives::Nowhere { .. } => unreachable!("no value is read for a knob that is gone"),
        }
        plan
    }

    /// The limit on the latency of CPUs that it requests, in microseconds. No step sets it; a process must hold it.
    pub fn cpu_latency_us(&self) -> Option<u32> {
        (self.lives == Lives::CpuLatency).then(|| self.number())
    }

    fn write(&self, key: &'static str, site: &Site) -> Step {
        let key = sysctl::Key::new(key).expect("the table's keys are paths");
        let value = match &self.value {
            // The one parameter with CPUs takes them as a mask.
            Value::Cpus(Cpus::These(cpus)) => cpus.to_mask(),
            Value::Cpus(Cpus::None) => CpuSet::default().to_mask(),
            Value::Cpus(Cpus::Node) => site.cpus.to_mask(),
            Value::Cpus(Cpus::Groups(_)) => unreachable!("no parameter has queues"),
            Value::Number(_)
            | Value::Signed(_)
            | Value::Shared(_)
            | Value::Numbers(_)
            | Value::Name(_)
            | Value::Rss(_) => self.value.to_string(),
        };
        Step::from(SetSysctl { key, value })
    }

    fn metric(&self) -> MetricValue {
        match &self.value {
            Value::Name(name) => MetricValue::Name(name.clone()),
            _ => MetricValue::Number(self.number()),
        }
    }

    /// The selected CPUs; empty for a value of another kind.
    fn cpus(&self, site: &Site) -> CpuSet {
        match &self.value {
            Value::Cpus(Cpus::Node) => site.cpus.clone(),
            Value::Cpus(Cpus::These(cpus)) => cpus.clone(),
            _ => CpuSet::default(),
        }
    }

    /// Every receive queue has all the CPUs. Send queues share them out: a CPU sends by one queue.
    fn queues(&self, file: QueueFile, site: &Site) -> Vec<Step> {
        let link = || site.wire.clone();
        let Nic { rx, tx, .. } = site.nic;
        match file {
            QueueFile::RpsCpus => (0..rx)
                .map(|rx| {
                    Step::from(SetQueueCpus { link: link(), queue: Queue::Rx(rx), cpus: self.cpus(site) })
                })
                .collect(),
            QueueFile::RpsFlows => {
                let flows = self.flows(rx);
                (0..rx).map(|rx| Step::from(SetQueueFlows { link: link(), rx, flows })).collect()
            }
            QueueFile::XpsCpus => {
                let cpus = self.cpus(site);
                let turn = |queue: u16| match &self.value {
                    Value::Cpus(Cpus::Groups(lists)) => {
                        lists[usize::from(queue) * lists.len() / usize::from(tx)].clone()
                    }
                    _ => cpus.iter().skip(queue.into()).step_by(tx.max(1).into()).collect(),
                };
                (0..tx)
                    .map(|queue| {
                        Step::from(SetQueueCpus { link: link(), queue: Queue::Tx(queue), cpus: turn(queue) })
                    })
                    .collect()
            }
        }
    }

    /// The share of each receive queue. The kernel accepts powers of two, so the number of queues is rounded up to
    /// one.
    fn flows(&self, queues: u16) -> u32 {
        match self.value {
            Value::Shared(total) => {
                let each = total / u64::from(queues).next_power_of_two();
                u32::try_from(each.max(1)).expect("the table keeps it within 32 bits")
            }
            _ => self.number(),
        }
    }

    /// One CPU each, in turn by queue, so that both directions of a queue have the same.
    fn interrupts(&self, site: &Site) -> Vec<Step> {
        let cpus: Vec<u16> = self.cpus(site).iter().collect();
        let step = |one: &Interrupt| {
            let queue = usize::from(queue_of(&one.name)?);
            let cpu = *cpus.get(queue.checked_rem(cpus.len())?)?;
            let (irq, name) = (one.number, one.name.clone());
            Some(Step::from(SetIrqCpus { irq, name, cpus: [cpu].into_iter().collect() }))
        };
        site.nic.interrupts.iter().filter_map(step).collect()
    }

    fn qdisc(&self) -> Qdisc {
        crate::qdisc::read(&self.value.to_string()).expect("the table takes no other")
    }

    /// What a card is to hash by; a test of the table sees to the kind.
    fn hashes(&self) -> Vec<RssHash> {
        match &self.value {
            Value::Rss(hashes) => hashes.clone(),
            _ => unreachable!("the table gives it fields or a key"),
        }
    }

    /// A number of a kind whose maximum fits 32 bits; a test of the table checks that.
    fn number(&self) -> u32 {
        match self.value {
            Value::Number(number) => u32::try_from(number).expect("the table keeps it within 32 bits"),
            _ => unreachable!("the table gives it a number"),
        }
    }
}

/// The knob that is nearest in spelling, if one is near. Of the kernel's own names the last part counts.
pub(crate) fn nearest(unknown: &str) -> Option<String> {
    let own = unknown.rsplit(['.', '/']).next().unwrap_or(unknown);
    record::nearest(own, all().map(|knob| knob.id)).map(str::to_owned)
}
