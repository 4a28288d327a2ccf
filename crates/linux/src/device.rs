//! A link as `/sys/class/net` shows it: its queues, interrupts, counters and the hardware below it.

use std::collections::BTreeMap;

use crate::{CpuSet, Error, Files, IfName, Result};

/// A link and the hardware below it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Device {
    pub name: IfName,
    /// Its number in its namespace.
    pub index: u32,
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
    /// It is administratively up.
    pub up: bool,
    /// Megabits a second, where the driver reports it.
    pub speed_mbit: Option<u32>,
    /// `full`, `half`, where the driver reports it.
    pub duplex: Option<String>,
    /// How often its carrier came or went.
    pub carrier_changes: u64,
    /// There is hardware (or what passes for it) below; bridges, veths and tunnels have none.
    pub hardware: bool,
    /// The links that carry its packets, if it has no hardware of its own: the active slaves of a bond, the parent of
    /// a VLAN.
    pub below: Vec<IfName>,
    /// The driver of that hardware.
    pub driver: Option<String>,
    /// The hardware's NUMA node; `None` where there is one node alone, or the machine does not report it.
    pub numa_node: Option<u16>,
    /// The CPUs of that node.
    pub local_cpus: CpuSet,
    /// The PCI Express slot in which that hardware is.
    pub slot: Option<Slot>,
    /// The numbers of its interrupts.
    pub interrupts: Vec<u32>,
    /// What it counted since its birth (`rx_packets`, `rx_missed_errors`, …).
    pub counters: BTreeMap<String, u64>,
    /// Its receive queues, in order.
    pub rx: Vec<RxQueue>,
    /// Its send queues, in order.
    pub tx: Vec<TxQueue>,
}

/// What a card and its slot agreed on, and what the card could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Slot {
    /// Megatransfers a second of a lane.
    pub transfers: u32,
    pub lanes: u32,
    /// At what the card could run.
    pub transfers_max: u32,
    /// Lanes that the card supports; it may use fewer.
    pub lanes_max: u32,
}

impl Slot {
    /// Megabits of data a second and direction, without the code of the wire: a fifth up to the second generation, 2 of
    /// 130 bits after it. Headers of packets take about a tenth more.
    pub fn mbit(&self) -> u64 {
        let raw = u64::from(self.transfers) * u64::from(self.lanes);
        if self.transfers <= 5000 { raw * 8 / 10 } else { raw * 128 / 130 }
    }
}

/// A receive queue, from `queues/rx-N` in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RxQueue {
    /// The CPUs to which packets are steered (RPS); none: it is off.
    pub rps: CpuSet,
    /// How many flows are followed to their readers (RFS); 0: none.
    pub flows: u32,
}

/// A send queue, from `queues/tx-N` in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxQueue {
    /// The CPUs that send through it (XPS); `None` for the only send queue of a link, where XPS has no choice to make.
    pub xps: Option<CpuSet>,
}

impl Files {
    /// The links of the namespace from which this `sys` was mounted. An entry without an index is skipped: a link that
    /// was just removed, or the bonding driver's file, which lies among the links.
    ///
    /// # Errors
    /// A file is not readable, or has a form that no kernel writes.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let names = self.list("sys/class/net")?.into_iter().filter_map(|name| IfName::new(name).ok());
        let mut devices =
            names.filter_map(|name| self.device(name).transpose()).collect::<Result<Vec<_>>>()?;
        for at in 0..devices.len() {
            devices[at].below = self.below(&devices[at], &devices)?;
        }
        Ok(devices)
    }

    fn below(&self, device: &Device, all: &[Device]) -> Result<Vec<IfName>> {
        if device.hardware {
            return Ok(Vec::new());
        }
        let at = format!("sys/class/net/{}", device.name);
        // Where one card is in use and the others wait, it is named; else the file is empty.
        let active = self.read(&format!("{at}/bonding/active_slave"))?.filter(|name| !name.trim().is_empty());
        let slaves = if active.is_some() { active } else { self.read(&format!("{at}/bonding/slaves"))? };
        if let Some(slaves) = slaves {
            return Ok(slaves.split_ascii_whitespace().filter_map(|name| IfName::new(name).ok()).collect());
        }
        // Of other kinds this is a number in another namespace: a veth's is that of its peer.
        let is_vlan = self.read(&format!("{at}/uevent"))?.is_some_and(|text| text.contains("DEVTYPE=vlan"));
        let lower = if is_vlan { self.number(&format!("{at}/iflink"))? } else { None };
        let lower = all.iter().find(|other| Some(u64::from(other.index)) == lower);
        Ok(lower.map(|other| other.name.clone()).into_iter().collect())
    }

    fn device(&self, name: IfName) -> Result<Option<Device>> {
        let at = format!("sys/class/net/{name}");
        let parsed = |file: &str| self.number(&format!("{at}/{file}"));
        let Some(index) = parsed("ifindex")? else { return Ok(None) };
        let required = |file: &str| Ok(parsed(file)?.unwrap_or_default());
        let uevent = self.read(&format!("{at}/device/uevent"))?;
        // A virtio card is a device on top of a PCI device; the interrupts and the NUMA node belong to the PCI device.
        // Below a card that is on the bus itself lies the port, which has its own interrupts and node.
        let is_pci = uevent.as_deref().is_some_and(|text| text.contains("PCI_SLOT_NAME="));
        let below = [format!("{at}/device"), format!("{at}/device/..")];
        let mut interrupts = Vec::new();
        let (mut numa_node, mut local_cpus, mut slot) = (None, CpuSet::default(), None);
        for place in below.iter().take(if is_pci { 1 } else { 2 }) {
            slot = slot.or(self.slot(place)?);
            interrupts.extend(self.interrupts_of(place)?);
            if let Some(node) = self.read(&format!("{place}/numa_node"))? {
                numa_node = numa_node.or(node.trim().parse().ok());
            }
            if let Some(list) = self.read(&format!("{place}/local_cpulist"))? {
                local_cpus = list.trim().parse().unwrap_or_default();
            }
        }
        let driver =
            uevent.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("DRIVER=")));
        let flags = self.read(&format!("{at}/flags"))?.unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or_default();
        Ok(Some(Device {
            index: to_u32(index),
            mtu: to_u32(required("mtu")?),
            up: flags & 1 != 0,
            // Drivers report -1 for an unknown speed.
            speed_mbit: parsed("speed")?.map(to_u32).filter(|speed| *speed > 0),
            duplex: self.read(&format!("{at}/duplex"))?.map(|text| text.trim().to_owned()),
            carrier_changes: required("carrier_changes")?,
            hardware: uevent.is_some(),
            below: Vec::new(),
            driver: driver.map(str::to_owned),
            numa_node,
            local_cpus,
            slot,
            interrupts,
            counters: self.counters_of(&at)?,
            rx: self.rx_queues(&at)?,
            tx: self.tx_queues(&at)?,
            name,
        }))
    }

    /// `8.0 GT/s PCIe` and a number of lanes. A device without a slot reports `Unknown` and 0 lanes.
    fn slot(&self, device: &str) -> Result<Option<Slot>> {
        let speed = |file: &str| -> Result<Option<u32>> {
            let text = self.read(&format!("{device}/{file}"))?.unwrap_or_default();
            let transfers = text.split_ascii_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            Ok(transfers.map(|transfers| (transfers * 1000.0) as u32))
        };
        let lanes =
            |file: &str| -> Result<Option<u32>> { Ok(self.number(&format!("{device}/{file}"))?.map(to_u32)) };
        let now = speed("current_link_speed")?.zip(lanes("current_link_width")?);
        let most = speed("max_link_speed")?.zip(lanes("max_link_width")?);
        let slot = now.zip(most).map(|((transfers, lanes), (transfers_max, lanes_max))| Slot {
            transfers,
            lanes,
            transfers_max,
            lanes_max,
        });
        // Built-in devices report a maximum of 255 lanes and an unknown speed.
        Ok(slot.filter(|slot| slot.lanes > 0 && slot.lanes_max < 255))
    }

    fn interrupts_of(&self, device: &str) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for name in self.list(&format!("{device}/msi_irqs"))? {
            // Read it only so that a collected tree contains it.
            self.read(&format!("{device}/msi_irqs/{name}"))?;
            numbers.extend(name.parse::<u32>());
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn counters_of(&self, at: &str) -> Result<BTreeMap<String, u64>> {
        let mut counters = BTreeMap::new();
        for name in self.list(&format!("{at}/statistics"))? {
            if let Some(number) = self.number(&format!("{at}/statistics/{name}"))? {
                counters.insert(name, number);
            }
        }
        Ok(counters)
    }

    fn rx_queues(&self, at: &str) -> Result<Vec<RxQueue>> {
        let queues = self.queue_directories(at, "rx-")?;
        let queue = |path: &String| {
            let rps = self.mask(&format!("{path}/rps_cpus"))?.unwrap_or_default();
            Ok(RxQueue {
                rps,
                flows: to_u32(self.number(&format!("{path}/rps_flow_cnt"))?.unwrap_or_default()),
            })
        };
        queues.iter().map(queue).collect()
    }

    fn tx_queues(&self, at: &str) -> Result<Vec<TxQueue>> {
        let queues = self.queue_directories(at, "tx-")?;
        let queue = |path: &String| {
            // The kernel does not report xps_cpus of a single queue; this file is read so that the queue is
            // in a collected tree.
            self.read(&format!("{path}/tx_timeout"))?;
            Ok(TxQueue { xps: self.mask(&format!("{path}/xps_cpus"))? })
        };
        queues.iter().map(queue).collect()
    }

    fn queue_directories(&self, at: &str, prefix: &str) -> Result<Vec<String>> {
        let names = self.list(&format!("{at}/queues"))?;
        let mut numbers: Vec<u16> =
            names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers.iter().map(|number| format!("{at}/queues/{prefix}{number}")).collect())
    }

    /// A file with one number; `None` for a negative one such as -1.
    pub fn number(&self, path: &str) -> Result<Option<u64>> {
        let Some(text) = self.read(path)? else { return Ok(None) };
        let number: i128 = text.trim().parse().map_err(|_| self.misread(path, &text))?;
        Ok(u64::try_from(number).ok())
    }

    fn mask(&self, path: &str) -> Result<Option<CpuSet>> {
        let Some(text) = self.read(path)? else { return Ok(None) };
        CpuSet::from_mask(&text).map(Some).map_err(|_| self.misread(path, &text))
    }

    fn misread(&self, path: &str, text: &str) -> Error {
        Error::invalid(format!("read {}", self.shown(path)), format!("{:?} was not understood", text.trim()))
    }
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only link of a tree with these files.
    fn card(files: &[(&str, &str)]) -> Device {
        let texts =
            files.iter().map(|(path, text)| (format!("sys/class/net/eth0/{path}"), (*text).to_owned()));
        Files::of(texts.collect()).devices().unwrap().remove(0)
    }

    #[test]
    fn a_virtio_card_has_its_interrupts_one_device_below() {
        let texts = [
            ("ifindex", "2\n"),
            ("mtu", "1500\n"),
            ("flags", "0x1003\n"),
            ("speed", "-1\n"),
            ("device/uevent", "DRIVER=virtio_net\nMODALIAS=virtio:d1\n"),
            ("device/../msi_irqs/38", "msix\n"),
            ("device/../msi_irqs/37", "msix\n"),
            ("device/../numa_node", "-1\n"),
            ("device/../current_link_speed", "8.0 GT/s PCIe\n"),
            ("device/../current_link_width", "4\n"),
            ("device/../max_link_speed", "16.0 GT/s PCIe\n"),
            ("device/../max_link_width", "8\n"),
            ("statistics/rx_packets", "12\n"),
            ("queues/rx-0/rps_cpus", "3\n"),
            ("queues/rx-0/rps_flow_cnt", "64\n"),
            ("queues/rx-10/rps_cpus", "0\n"),
            ("queues/rx-2/rps_cpus", "1\n"),
            ("queues/tx-0/tx_timeout", "0\n"),
        ];
        let card = card(&texts);
        assert_eq!((card.mtu, card.up, card.speed_mbit, card.hardware), (1500, true, None, true));
        assert_eq!((card.driver.as_deref(), card.interrupts.as_slice()), (Some("virtio_net"), &[37, 38][..]));
        assert_eq!((card.numa_node, card.counters["rx_packets"]), (None, 12));
        let slot = card.slot.unwrap();
        assert_eq!((slot.transfers_max, slot.lanes_max, slot.mbit()), (16_000, 8, 31_507));
        let rps: Vec<String> = card.rx.iter().map(|queue| queue.rps.to_string()).collect();
        assert_eq!(rps, ["0-1", "0", ""]);
        assert_eq!((card.rx[0].flows, card.tx.len(), card.tx[0].xps.is_none()), (64, 1, true));
    }

    #[test]
    fn a_card_on_the_bus_has_nothing_of_the_port_above_it() {
        let texts = [
            ("ifindex", "2\n"),
            ("mtu", "1500\n"),
            ("flags", "0x1003\n"),
            ("device/uevent", "DRIVER=ixgbe\nPCI_ID=8086:1563\nPCI_SLOT_NAME=0000:3b:00.0\n"),
            ("device/msi_irqs/71", "msix\n"),
            ("device/local_cpulist", "0-3\n"),
            ("device/../msi_irqs/24", "msi\n"),
            ("device/../local_cpulist", "0-7\n"),
        ];
        let card = card(&texts);
        assert_eq!((card.interrupts.as_slice(), card.local_cpus.to_string()), (&[71][..], "0-3".to_owned()));
    }

    #[test]
    fn a_bond_and_a_vlan_have_links_below() {
        let texts = [
            ("eth0/ifindex", "2\n"),
            ("eth0/device/uevent", "DRIVER=ixgbe\n"),
            ("eth1/ifindex", "3\n"),
            ("eth1/device/uevent", "DRIVER=ixgbe\n"),
            ("bond0/ifindex", "4\n"),
            ("bond0/uevent", "DEVTYPE=bond\nINTERFACE=bond0\n"),
            ("bond0/bonding/slaves", "eth0 eth1\n"),
            ("bond0/bonding/active_slave", "\n"),
            ("bond1/ifindex", "7\n"),
            ("bond1/bonding/slaves", "eth0 eth1\n"),
            ("bond1/bonding/active_slave", "eth1\n"),
            ("bond0.7/ifindex", "5\n"),
            ("bond0.7/uevent", "DEVTYPE=vlan\nINTERFACE=bond0.7\n"),
            ("bond0.7/iflink", "4\n"),
            ("veth0/ifindex", "6\n"),
            ("veth0/uevent", "INTERFACE=veth0\n"),
            ("veth0/iflink", "2\n"),
        ];
        let texts = texts.map(|(path, text)| (format!("sys/class/net/{path}"), text.to_owned()));
        let devices = Files::of(texts.into()).devices().unwrap();
        let below = |name: &str| -> Vec<&str> {
            let device = devices.iter().find(|device| device.name.as_str() == name).unwrap();
            device.below.iter().map(IfName::as_str).collect()
        };
        assert_eq!((below("bond0"), below("bond0.7")), (vec!["eth0", "eth1"], vec!["bond0"]));
        assert_eq!((below("eth0"), below("veth0"), below("bond1")), (vec![], vec![], vec!["eth1"]));
    }

    #[test]
    fn what_has_no_number_is_no_link() {
        let texts = [
            ("sys/class/net/bonding_masters", "bond0\n"),
            ("sys/class/net/gone0/mtu", "1500\n"),
            ("sys/class/net/eth0/ifindex", "2\n"),
        ];
        let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let devices = Files::of(texts.into()).devices().unwrap();
        assert_eq!(devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["eth0"]);
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        let devices = Files::kernel().devices().unwrap();
        let lo = devices.iter().find(|device| device.name.as_str() == "lo").unwrap();
        assert!(!lo.hardware && lo.up && lo.rx.len() == 1);
    }
}
