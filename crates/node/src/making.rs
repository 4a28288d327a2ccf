//! An attachment in the making: its interface, its addresses, by whomever they are given, and what rests on them.

use std::net::IpAddr;

use cni::{Attached, Attachment, Failure};
use datapath::{Addresses, Device, Pod};
use ipam::Store;
use linux::{IfName, Netns};
use plan::{Journal, Kernel, Place, Plan, Step, Unit, apply};

use crate::Home;
use crate::conf::{AddressSource, Conf};
use crate::container_args::{ContainerArgs, ports_at};
use crate::delegate::Delegate;
use crate::describe::describe;
use crate::failures::{invalid_call, invalid_conf, of_journal, of_plan, unsupported, with_consequence};
use crate::unit::{JOURNAL, Record, others};
use crate::{device, network, node_spec};

/// Behind it are the routes of further interfaces. It is the kernel's default for IPv6, and behind that for IPv4.
const METRIC: u32 = 1024;

/// An attachment in the making.
pub(crate) struct Making<'a> {
    pub(crate) home: &'a Home,
    pub(crate) wanted: &'a ContainerArgs,
    pub(crate) attachment: &'a Attachment,
    pub(crate) record: &'a Record,
    pub(crate) place: &'a Place,
    pub(crate) unit: &'a Unit,
}

impl Making<'_> {
    /// Makes it, with the addresses that are reserved for it or given.
    pub(crate) fn join(
        &self,
        conf: &Conf,
        delegate: Option<&Delegate<'_>>,
        kernel: &mut Kernel,
    ) -> Result<Attached, Failure> {
        refuse_second(self.home, conf, self.record, self.unit.id())?;
        let device = self.wanted.device.as_deref();
        let device =
            device.map(|id| device::find(self.home, self.unit.id(), id, conf, kernel)).transpose()?;
        let pod = self.pod(device)?;
        let mut journal = self.unit.journal(JOURNAL).map_err(|error| of_journal(&error))?;
        let Some(delegate) = delegate else {
            return self.complete(conf, pod, &Plan::new(), &mut journal, kernel);
        };
        let begun = match delegate.speaks_by_interface() {
            true => self.make_interface(conf, &pod, &mut journal, kernel)?,
            false => Plan::new(),
        };
        let given = delegate.add(self.attachment)?;
        let completed = conf
            .clone()
            .with_given(given)
            .and_then(|conf| self.complete(&conf, pod, &begun, &mut journal, kernel));
        completed.map_err(|failure| released(failure, Some(delegate), self.attachment))
    }

    /// The pod as drivers see it, without addresses.
    fn pod(&self, device: Option<Device>) -> Result<Pod, Failure> {
        let ifname = IfName::new(&self.record.ifname);
        Ok(Pod {
            id: self.record.number,
            place: self.place.clone(),
            ifname: ifname.map_err(|error| invalid_call(format!("CNI_IFNAME: {error}")))?,
            addresses: Addresses::default(),
            mac: self.wanted.mac,
            default_route: false,
            routes: Vec::new(),
            gateways: Addresses::default(),
            published: self.wanted.ports.clone(),
            limits: self.wanted.limits,
            device,
            vhost_user: false,
        })
    }

    /// Makes the interface by which an address is asked for; what was done.
    fn make_interface(
        &self,
        conf: &Conf,
        pod: &Pod,
        journal: &mut Journal,
        kernel: &mut Kernel,
    ) -> Result<Plan, Failure> {
        let network = &self.record.network_unit();
        let number = network::take_number(self.home, network)?;
        let node = node_spec::spec(self.home, network, conf, (number, self.unit.id()))?;
        let plan = conf.path.interface_plan(&node, pod).map_err(|error| invalid_conf(error.to_string()))?;
        apply(&plan, journal, kernel).map_err(|error| of_plan(&plan, &error))?;
        Ok(plan)
    }

    /// Makes what is left to do when some has begun.
    fn complete(
        &self,
        conf: &Conf,
        pod: Pod,
        begun: &Plan,
        journal: &mut Journal,
        kernel: &mut Kernel,
    ) -> Result<Attached, Failure> {
        let Making { home, record, .. } = self;
        let node = network::stand(home, &record.network_unit(), conf, self.unit.id(), kernel)?;
        let reserved = match &conf.addresses {
            AddressSource::Store(ranges) => record.leases(home).reserve(
                (&record.container_id, &record.ifname),
                ranges,
                &self.wanted.ips,
                Store::reserve_for_new,
            )?,
            AddressSource::Delegate(given) => given.clone(),
        };
        let addresses: Addresses = reserved.iter().map(|one| one.address.addr()).collect();
        let pod = Pod {
            published: ports_at(&pod.published, &addresses),
            addresses,
            default_route: conf.default_route,
            routes: conf.routes.clone(),
            gateways: reserved.iter().map(|one| one.gateway).collect(),
            ..pod
        };
        let mut plan = conf.path.pod_plan(&node, &pod).map_err(|error| invalid_conf(error.to_string()))?;
        for step in conf.parameters.steps(&pod.ifname) {
            plan.push(&pod.place, step);
        }
        // Where an interface sends from its own addresses alone, a route behind another's would be of no use.
        if record.rank > 0 && !conf.path.attach.binds_pods() {
            give_way(&mut plan, self.place, record.rank);
        }
        let mut left = plan.clone();
        left.steps.retain(|placed| !begun.steps.contains(placed));
        apply(&left, journal, kernel).map_err(|error| of_plan(&left, &error))?;
        let attached = describe(&plan, &reserved, self.attachment, self.place, kernel)?;
        if conf.path.attach.has_neighbours() {
            // Those that do not hear it find out by themselves, only later.
            let _ = self.announce(&pod, kernel);
        }
        Ok(Attached { dns: conf.dns.clone(), ..attached })
    }
}

impl Making<'_> {
    /// Says at the container's link which Ethernet address its addresses have now. A container before this one may have
    /// had them, and neighbours send to that one's until their entries age, as long as this one asks them for nothing.
    fn announce(&self, pod: &Pod, kernel: &mut Kernel) -> linux::Result<()> {
        let link = kernel.link(self.place, &pod.ifname)?;
        let (Some((index, Some(mac))), Place::Path(path)) =
            (link.map(|link| (link.index, link.mac)), self.place)
        else {
            return Ok(());
        };
        let addresses: Vec<IpAddr> = pod.addresses.iter().collect();
        Netns::open_path(path)?.run(|| linux::announce(index, mac, &addresses))?
    }
}

/// Refuses a second interface in one network where it would not be reached.
fn refuse_second(home: &Home, conf: &Conf, record: &Record, own: &str) -> Result<(), Failure> {
    if !conf.path.attach.binds_pods() {
        return Ok(());
    }
    let Record { container_id, ifname, .. } = record;
    let network = record.network_unit();
    let others = others(home, own, container_id);
    let first = others.iter().find(|other| other.network_unit() == network);
    first.map_or(Ok(()), |first| {
        let name = conf.path.name;
        Err(unsupported(format!(
            "container {container_id} is attached to {network} by {} already; with {name} {ifname} would not be reached, \
             since its answers would leave by {}, which sends from its own addresses alone",
            first.ifname, first.ifname
        )))
    })
}

/// Puts the routes of a container's further interface behind those of its first ones to the same destinations, which
/// would be refused otherwise. They count where the others are gone.
fn give_way(plan: &mut Plan, container: &Place, rank: u32) {
    for placed in plan.steps.iter_mut().filter(|placed| placed.place == *container) {
        if let Step::AddRoute(route) = &mut placed.step {
            route.metric = Some(route.metric.unwrap_or(METRIC).saturating_add(rank));
        }
    }
}

/// A failure after which a plugin for addresses has released what it gave.
pub(crate) fn released(
    failure: Failure,
    delegate: Option<&Delegate<'_>>,
    attachment: &Attachment,
) -> Failure {
    let released = delegate.map_or(Ok(()), |delegate| delegate.del(attachment));
    with_consequence(failure, released)
}
