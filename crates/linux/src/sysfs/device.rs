//! The hardware behind a link: driver, device, interrupts.

use std::collections::BTreeSet;

use super::NetSysfs;
use crate::interrupts::Interrupts;
use crate::{CpuSet, IfName, Result};

impl NetSysfs {
    /// The driver of a link's device; `None` for a link without a device (a bridge, a veth).
    pub fn driver(&self, link: &IfName) -> Option<String> {
        self.target(&format!("class/net/{link}/device/driver"))
    }

    /// The name of a link's device on its bus: `virtio1`, `0000:3b:00.0`.
    pub fn device(&self, link: &IfName) -> Option<String> {
        self.target(&format!("class/net/{link}/device"))
    }

    /// The address of a link's device on its bus: `0000:3b:00.0`. A virtio device has that of its PCI device; `None`
    /// for a link without a device.
    pub fn bus_address(&self, link: &IfName) -> Option<String> {
        self.device(link)?;
        let path = self.path_of(&format!("class/net/{link}"))?;
        // The last part is the link's own name, which may be anything.
        let mut parts = path.rsplit('/').skip(1).skip_while(|part| *part != "net").skip(1);
        parts.find(|part| !part.starts_with("virtio")).map(str::to_owned)
    }

    /// The links of a device, by its [address](NetSysfs::bus_address). A card with several ports may have
    /// one device for all.
    pub fn links_of(&self, device: &str) -> Result<Vec<IfName>> {
        let links = self.links()?.into_iter();
        Ok(links.filter(|link| self.bus_address(link).as_deref() == Some(device)).collect())
    }

    /// The link's speed in megabits per second; `None` where its driver does not know one.
    pub fn speed_mbit_s(&self, link: &IfName) -> Option<u32> {
        // -1 stands for an unknown one.
        self.read(&format!("class/net/{link}/speed")).ok()?.trim().parse().ok()
    }

    /// The CPUs on the NUMA node of a link's device; `None` if unknown. For a virtio device it is the node of its PCI
    /// device.
    pub fn local_cpus(&self, link: &IfName) -> Option<CpuSet> {
        let read = |device: &str| self.read(&format!("class/net/{link}/{device}/local_cpulist")).ok();
        let of_pci = || self.is_virtio(link).then(|| read("device/..")).flatten();
        let cpus: CpuSet = read("device").or_else(of_pci)?.parse().ok()?;
        (!cpus.is_empty()).then_some(cpus)
    }

    fn is_virtio(&self, link: &IfName) -> bool {
        self.device(link).is_some_and(|name| name.starts_with("virtio"))
    }

    /// The numbers of a link's interrupts. A virtio device uses those of its PCI device; a link without a device has
    /// none.
    pub fn interrupts(&self, link: &IfName) -> Result<BTreeSet<u32>> {
        let device = format!("class/net/{link}/device");
        let parent = format!("{device}/../msi_irqs");
        let is_virtio = self.is_virtio(link);
        let own = self.directory(&format!("{device}/msi_irqs"));
        let names = match own {
            Err(error) if error.is(libc::ENOENT) && is_virtio => self.directory(&parent),
            own => own,
        };
        match names {
            Ok(names) => Ok(names.iter().filter_map(|name| name.parse().ok()).collect()),
            Err(error) if error.is(libc::ENOENT) => self.by_name(link),
            Err(error) => Err(error),
        }
    }

    /// Without message-signalled interrupts there is no list; the kernel's table has the device's or the link's name.
    fn by_name(&self, link: &IfName) -> Result<BTreeSet<u32>> {
        let Some(device) = self.device(link) else { return Ok(BTreeSet::new()) };
        let ours = |name: &str| {
            [device.as_str(), link.as_str()].iter().any(|own| {
                name.strip_prefix(own).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            })
        };
        let all = Interrupts::kernel().list()?;
        Ok(all.into_iter().filter(|one| ours(&one.name)).map(|one| one.number).collect())
    }

    /// The last part of what a symbolic link leads to.
    pub(super) fn target(&self, path: &str) -> Option<String> {
        self.path_of(path)?.rsplit('/').next().map(str::to_owned)
    }

    /// What a symbolic link leads to.
    fn path_of(&self, path: &str) -> Option<String> {
        rustix::fs::readlinkat(&self.root, path, Vec::new()).ok()?.into_string().ok()
    }
}
