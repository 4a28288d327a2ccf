//! What is written down of a race before its first packet: the entrants, and the machine.

use linux::CpuSet;
use linux::cpu::Scheduling;
use record::{Entrant, Header, WorkloadKind};

use super::Race;
use crate::candidate::Contender;
use crate::cpus::switches;
use crate::machine::machine;
use crate::possible::relays;
use crate::{LabError, Topology};

impl Race {
    /// What is known before the first packet.
    pub(super) fn header(&self) -> Result<Header, LabError> {
        let mut machine = machine(&self.method.cpus, self.options.scheduling)?;
        machine.facts.insert(Header::SCHEDULING.to_owned(), self.scheduling());
        let workload = &self.experiment.workload;
        self.options.machines.iter().for_each(|others| others.describe(&mut machine, workload));
        Ok(Header {
            schema: record::SCHEMA,
            hostgap: self.options.own.version.to_owned(),
            started_unix_s: linux::clock::unix_s(),
            seed: self.seed,
            experiment: self.experiment.clone(),
            machine,
            server: match self.experiment.workload.kind {
                WorkloadKind::Packets => "the kernel makes frames and judges them".to_owned(),
                kind if kind.is_stream() => format!("a receiver of hostgap {}", self.options.own.version),
                _ => match &self.options.machines {
                    Some(machines) => machines.server().program().to_owned(),
                    None => self.server.describe(),
                },
            },
            entrants: self.entrants()?,
            pair: None,
        })
    }

    /// By which policy threads are scheduled, those that hardly sleep too.
    fn scheduling(&self) -> String {
        let workload = &self.experiment.workload;
        let spinning = self.racing(|contender| contender.stack.wait.hardly_sleeps());
        let carried = self.racing(Contender::is_carried);
        let switches = match carried.as_slice() {
            [] => String::new(),
            names => format!("; normal for the switches in user space, of {}", names.join(", ")),
        };
        match self.options.scheduling {
            Scheduling::Normal => "normal".to_owned(),
            Scheduling::Fifo(_) if workload.kind.is_stream() => {
                "normal, since no thread of a stream sleeps".to_owned()
            }
            Scheduling::Fifo(priority) if workload.cpu_us.is_some() => {
                format!(
                    "{} {priority} for the client, normal for the server, which hardly sleeps",
                    Header::REAL_TIME
                )
            }
            Scheduling::Fifo(priority) if spinning.is_empty() => {
                format!("{} {priority} for client and server{switches}", Header::REAL_TIME)
            }
            Scheduling::Fifo(priority) => format!(
                "{} {priority} for client and server; normal for the threads that spin, of {}{switches}",
                Header::REAL_TIME,
                spinning.join(", ")
            ),
        }
    }

    /// What switches in user space lack where there is not a CPU for each beside those of client and server. For those
    /// that poll cores are left; of others an odd core is the only one that is nobody's.
    pub(crate) fn crowded(&self) -> Option<String> {
        let carried = self.racing(Contender::is_carried);
        let (free, switches) = (self.spare_cpus().len(), switches(self.experiment.placement));
        if carried.is_empty() || free >= switches {
            return None;
        }
        let mut text = format!(
            "{}: CPUs for switches beside those of client and server: {free}, wanted {switches}; so they share those",
            carried.join(", ")
        );
        let polls = self.racing(Contender::polls);
        if !polls.is_empty() {
            text += &format!(
                "; not ranked below {} cores, since the switches poll: {}",
                2 + switches,
                polls.join("; ")
            );
        }
        Some(text)
    }

    /// Whether nothing can be said of it against others, since its switches poll on CPUs of client and server.
    pub(crate) fn is_crowded(&self, contender: &Contender) -> bool {
        contender.races() && contender.is_crowded(&self.spare_cpus(), self.experiment.placement)
    }

    /// On what switches poll, and that no node has it. `None`: none polls.
    pub(super) fn cores_of_switches(&self) -> Option<String> {
        let polls = self.racing(Contender::polls);
        if polls.is_empty() {
            return None;
        }
        let free = self.spare_cpus();
        Some(format!(
            "poll on CPUs {free}, which no candidate's client and server have, of {}",
            polls.join("; ")
        ))
    }

    /// The CPUs that are neither the client's nor the server's.
    pub(super) fn spare_cpus(&self) -> CpuSet {
        self.method.cpus.spare(&self.options.cpus, self.experiment.placement)
    }

    fn racing(&self, which: fn(&Contender) -> bool) -> Vec<&str> {
        let racing = self.contenders.iter().filter(|contender| contender.races());
        racing.filter(|contender| which(contender)).map(|contender| contender.name.as_str()).collect()
    }

    /// The candidates that race and those that cannot, with the commands that build each.
    ///
    /// # Errors
    /// A topology cannot be planned.
    pub fn entrants(&self) -> Result<Vec<Entrant>, LabError> {
        self.contenders.iter().map(|contender| self.entrant(contender)).collect()
    }

    /// A contender's topology, with the names that a reader is shown.
    pub(super) fn planned(&self, contender: &Contender) -> Result<Topology, LabError> {
        Topology::plan(self.shape(contender, None)).map_err(|error| error.of_plan(&contender.name))
    }

    pub(super) fn entrant(&self, contender: &Contender) -> Result<Entrant, LabError> {
        let can_run = contender.races();
        // What machines lack may be what the plan would be made of, and there is none for a family without callers.
        let is_called = relays::uncalled(contender, self.experiment.workload.ipv6).is_none();
        let is_planned = can_run || (self.options.machines.is_none() && is_called);
        let topology = is_planned.then(|| self.planned(contender)).transpose()?;
        let known = topology.as_ref().filter(|_| contender.is_known());
        let with_mtu = topology.as_ref().filter(|_| can_run && contender.cni.is_none());
        Ok(Entrant {
            name: contender.name.clone(),
            path: contender.path_name().to_owned(),
            stands_for: contender.stands_for.clone(),
            unmet: contender.unmet.clone(),
            commands: known.map(Topology::commands).unwrap_or_default(),
            settings: contender.settings.recorded(),
            mtu: with_mtu.map(|topology| topology.pod_mtu_bytes),
            carried: can_run && contender.is_carried(),
            crowded: self.is_crowded(contender),
        })
    }
}
