//! Virtual functions of cards (SR-IOV): of which card they are, and which driver or namespace has them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::NetSysfs;
use crate::{IfName, Result};

/// Which of a card's virtual functions a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its number on its card, from 0.
    pub number: u32,
    /// The card's own link, through which the function is configured.
    pub card: FunctionCard,
}

/// The link of the card to which a virtual function belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionCard {
    /// It is this one.
    Here(IfName),
    /// The card has no link in this namespace.
    Elsewhere,
    /// One of these, and nothing says which: the card has several ports, or a driver that does not say which of its
    /// links stand for virtual functions (`switchdev` mode).
    OneOf(Vec<IfName>),
}

/// Where a device is that has no link here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elsewhere {
    /// Its link is in another network namespace.
    Netns,
    /// This driver has it, which hands devices to virtual machines.
    Driver(String),
}

/// Which of a device's links a link is. A card with several ports may have one device for all of them, and in
/// `switchdev` mode it has a link for each virtual function beside its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DevicePort {
    /// The number of the port (`dev_port`), from 0.
    pub number: Option<u32>,
    /// What its driver calls it (`phys_port_name`), where it does: `p0`, or `pf0vf3` for what stands
    /// for a virtual function.
    pub name: Option<String>,
}

impl DevicePort {
    /// Whether it stands for a function of a card, and is no port of the card itself. The kernel makes such names of
    /// the kind of a port: `p0`, `p0s1`, but `pf0`, `pf0vf3`, `pf0sf88`, with `c1` before it where the card's host is
    /// another (`__devlink_port_phys_port_name_get` in net/devlink/port.c).
    fn stands_for_a_function(&self) -> bool {
        let name = self.name.as_deref().unwrap_or_default();
        let digits = |text: &str| text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
        let own = match name.strip_prefix('c') {
            Some(rest) if digits(rest) > 0 => &rest[digits(rest)..],
            _ => name,
        };
        own.strip_prefix("pf").is_some_and(|rest| digits(rest) > 0)
    }
}

impl NetSysfs {
    /// Which virtual function a link is. `None` for a link that is none.
    pub fn function_of(&self, link: &IfName) -> Option<Function> {
        let own = self.bus_address(link)?;
        let card = format!("class/net/{link}/device/physfn");
        let functions = self.directory(&card).ok()?;
        let number = functions.iter().find_map(|name| {
            let number = name.strip_prefix("virtfn")?.parse().ok()?;
            (self.target(&format!("{card}/{name}"))? == own).then_some(number)
        })?;
        let names = self.directory(&format!("{card}/net")).unwrap_or_default();
        let mut links: Vec<IfName> = names.iter().filter_map(|name| IfName::new(name).ok()).collect();
        if links.len() > 1 {
            links.retain(|link| !self.device_port(link).stands_for_a_function());
        }
        if links.len() > 1 {
            let port = self.device_port(link).number;
            let of_port = |link: &&IfName| self.device_port(link).number == port;
            if let [one] = links.iter().filter(of_port).collect::<Vec<_>>().as_slice() {
                links = vec![(*one).clone()];
            }
        }
        let card = match links.as_slice() {
            [] => FunctionCard::Elsewhere,
            [one] => FunctionCard::Here(one.clone()),
            _ => FunctionCard::OneOf(links),
        };
        Some(Function { number, card })
    }

    /// Which of its device's links a link is.
    pub fn device_port(&self, link: &IfName) -> DevicePort {
        let read = |file: &str| Some(self.read(&format!("class/net/{link}/{file}")).ok()?.trim().to_owned());
        let name = read("phys_port_name").filter(|name| !name.is_empty());
        DevicePort { number: read("dev_port").and_then(|text| text.parse().ok()), name }
    }

    /// The addresses of a card's virtual functions, each with its number.
    ///
    /// # Errors
    /// There is no such link, or its device cannot be listed.
    pub fn functions(&self, card: &IfName) -> Result<Vec<(u32, String)>> {
        let device = format!("class/net/{card}/device");
        let of = |name: &String| {
            let number = name.strip_prefix("virtfn")?.parse().ok()?;
            Some((number, self.target(&format!("{device}/{name}"))?))
        };
        let mut functions: Vec<(u32, String)> = self.directory(&device)?.iter().filter_map(of).collect();
        functions.sort();
        Ok(functions)
    }

    /// How many virtual functions a card can have at most; `None` for a card without, for a function, and for
    /// what is no card.
    pub fn functions_max(&self, card: &IfName) -> Option<u32> {
        let text = self.read(&format!("class/net/{card}/device/sriov_totalvfs")).ok()?;
        text.trim().parse().ok().filter(|most| *most > 0)
    }

    /// Where a device of this [address](NetSysfs::bus_address) is in use, if not here. `None` if its link is here, or
    /// it has none anywhere.
    ///
    /// A device keeps the directory of its links as long as it has any, in whichever namespace.
    pub fn elsewhere(&self, device: &str) -> Option<Elsewhere> {
        let path = self.path_of_device(device)?;
        let driver = self.target(&format!("{path}/driver"));
        if let Some(driver) = driver.filter(|driver| hands_devices_away(driver)) {
            return Some(Elsewhere::Driver(driver));
        }
        let mut links = self.links_in(&path).peekable();
        links.peek()?;
        links.all(|here| here.is_empty()).then_some(Elsewhere::Netns)
    }

    /// Whether a device of this [address](NetSysfs::bus_address) has links, in whichever namespace.
    pub fn has_links(&self, device: &str) -> bool {
        self.path_of_device(device).is_some_and(|path| self.links_in(&path).next().is_some())
    }

    /// The links here of a device with that path, and of each virtio device that stands for it.
    fn links_in<'a>(&'a self, path: &'a str) -> impl Iterator<Item = BTreeSet<String>> + 'a {
        let below = self.directory(path).unwrap_or_default();
        let virtio = below.into_iter().filter(|name| name.starts_with("virtio"));
        let of_virtio = virtio.map(move |name| format!("{path}/{name}/net"));
        std::iter::once(format!("{path}/net")).chain(of_virtio).filter_map(|net| self.directory(&net).ok())
    }

    fn path_of_device(&self, device: &str) -> Option<String> {
        let buses = self.directory("bus").unwrap_or_default();
        let mut paths = buses.iter().map(|bus| format!("bus/{bus}/devices/{device}"));
        paths.find(|path| self.directory(path).is_ok())
    }
}

/// Drivers by which virtual machines and programs have a device to themselves: `vfio-pci` and its like
/// (`mlx5_vfio_pci`), and older ones.
fn hands_devices_away(driver: &str) -> bool {
    driver.contains("vfio") || ["igb_uio", "pci-stub", "pciback", "uio_pci_generic"].contains(&driver)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// A made-up machine: each device with the links that it has here and the files of those.
    struct Machine(tempfile::TempDir);

    type Port<'a> = (&'a str, &'a str, Option<&'a str>);

    impl Machine {
        fn new() -> Machine {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("class/net")).unwrap();
            Machine(root)
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        /// Links are name, `dev_port` and `phys_port_name`.
        fn device(&self, address: &str, links: &[Port<'_>]) {
            let device = self.path().join("devices/pci0000:00").join(address);
            fs::create_dir_all(device.join("net")).unwrap();
            fs::create_dir_all(self.path().join("bus/pci/devices")).unwrap();
            symlink(&device, self.path().join("bus/pci/devices").join(address)).unwrap();
            for (name, port, port_name) in links {
                let link = device.join("net").join(name);
                fs::create_dir_all(&link).unwrap();
                fs::write(link.join("dev_port"), format!("{port}\n")).unwrap();
                if let Some(port_name) = port_name {
                    fs::write(link.join("phys_port_name"), format!("{port_name}\n")).unwrap();
                }
                symlink("../../../".to_owned() + address, link.join("device")).unwrap();
                let class = format!("../../devices/pci0000:00/{address}/net/{name}");
                symlink(class, self.path().join("class/net").join(name)).unwrap();
            }
        }

        fn function(&self, card: &str, number: u32, address: &str) {
            let devices = self.path().join("devices/pci0000:00");
            symlink(format!("../{address}"), devices.join(card).join(format!("virtfn{number}"))).unwrap();
            symlink(format!("../{card}"), devices.join(address).join("physfn")).unwrap();
        }

        fn sysfs(&self) -> NetSysfs {
            NetSysfs::at(self.path()).unwrap()
        }

        #[track_caller]
        fn check(&self, link: &str, expected: Option<(u32, FunctionCard)>) {
            let expected = expected.map(|(number, card)| Function { number, card });
            assert_eq!(self.sysfs().function_of(&named(link)), expected, "{link}");
        }
    }

    fn named(name: &str) -> IfName {
        IfName::new(name).unwrap()
    }

    const CARD: &str = "0000:3b:00.0";

    #[test]
    fn a_function_is_found_by_its_card() {
        let machine = Machine::new();
        machine.device(CARD, &[("ens1", "0", None)]);
        machine.device("0000:3b:02.1", &[("vf1", "0", None)]);
        machine.device("0000:3b:02.0", &[]);
        machine.function(CARD, 0, "0000:3b:02.0");
        machine.function(CARD, 1, "0000:3b:02.1");
        machine.check("vf1", Some((1, FunctionCard::Here(named("ens1")))));
        machine.check("ens1", None);
        let sysfs = machine.sysfs();
        let functions = sysfs.functions(&named("ens1")).unwrap();
        assert_eq!(functions, [(0, "0000:3b:02.0".to_owned()), (1, "0000:3b:02.1".to_owned())]);
        assert!(sysfs.functions(&named("vf1")).unwrap().is_empty());
    }

    #[test]
    fn a_card_says_how_many_functions_it_can_have() {
        let machine = Machine::new();
        machine.device(CARD, &[("ens1", "0", None)]);
        machine.device("0000:3b:00.1", &[("ens2", "0", None)]);
        machine.device("0000:3b:02.0", &[("vf0", "0", None)]);
        for (address, most) in [(CARD, "63\n"), ("0000:3b:00.1", "0\n")] {
            fs::write(machine.path().join("devices/pci0000:00").join(address).join("sriov_totalvfs"), most)
                .unwrap();
        }
        let most = |link: &str| machine.sysfs().functions_max(&named(link));
        assert_eq!([most("ens1"), most("ens2"), most("vf0"), most("lo")], [Some(63), None, None, None]);
    }

    /// In `switchdev` mode the card's device has a link for each function, which stands for it in the switch.
    #[test]
    fn what_stands_for_a_function_is_not_taken_for_the_card() {
        let machine = Machine::new();
        // By name the first is none of the card's own.
        let links =
            [("eth0", "0", Some("pf0vf0")), ("eth1", "0", Some("c1pf0sf8")), ("ens1", "0", Some("p0"))];
        machine.device(CARD, &links);
        machine.device("0000:3b:02.0", &[("vf0", "0", None)]);
        machine.function(CARD, 0, "0000:3b:02.0");
        machine.check("vf0", Some((0, FunctionCard::Here(named("ens1")))));
        for link in ["eth0", "eth1", "ens1"] {
            machine.check(link, None);
        }
    }

    #[test]
    fn of_two_ports_on_one_device_the_function_s_own_is_the_card() {
        let machine = Machine::new();
        machine.device(CARD, &[("ens1", "0", None), ("ens1d1", "1", None)]);
        machine.device("0000:3b:02.0", &[("vf0", "1", None)]);
        machine.device("0000:3b:02.1", &[("vf1", "0", None)]);
        machine.function(CARD, 0, "0000:3b:02.0");
        machine.function(CARD, 1, "0000:3b:02.1");
        machine.check("vf0", Some((0, FunctionCard::Here(named("ens1d1")))));
        machine.check("vf1", Some((1, FunctionCard::Here(named("ens1")))));
    }

    #[test]
    fn where_nothing_says_which_is_the_card_none_is_chosen() {
        let machine = Machine::new();
        // Of an old driver, which names no ports.
        machine.device(CARD, &[("ens1", "0", None), ("eth0", "0", None)]);
        machine.device("0000:3b:02.0", &[("vf0", "0", None)]);
        machine.function(CARD, 0, "0000:3b:02.0");
        machine.check("vf0", Some((0, FunctionCard::OneOf(vec![named("ens1"), named("eth0")]))));
        let gone = Machine::new();
        gone.device(CARD, &[]);
        gone.device("0000:3b:02.0", &[("vf0", "0", None)]);
        gone.function(CARD, 0, "0000:3b:02.0");
        gone.check("vf0", Some((0, FunctionCard::Elsewhere)));
    }

    #[test]
    fn names_of_ports_show_what_stands_for_a_function() {
        let check = |name: &str, expected: bool| {
            let port = DevicePort { number: Some(0), name: Some(name.to_owned()) };
            assert_eq!(port.stands_for_a_function(), expected, "{name}");
        };
        ["pf0", "pf0vf3", "pf12sf88", "c1pf0vf0"].into_iter().for_each(|name| check(name, true));
        ["p0", "p1s2", "c1", "port", "pf", ""].into_iter().for_each(|name| check(name, false));
    }

    #[test]
    fn a_device_without_a_link_here_may_be_in_use_elsewhere() {
        let machine = Machine::new();
        machine.device("0000:3b:02.0", &[("vf0", "0", None)]);
        machine.device("0000:3b:02.1", &[]);
        machine.device("0000:3b:02.2", &[]);
        let devices = machine.path().join("devices/pci0000:00");
        fs::remove_dir(devices.join("0000:3b:02.2/net")).unwrap();
        let elsewhere = |device: &str| machine.sysfs().elsewhere(device);
        assert_eq!(elsewhere("0000:3b:02.0"), None);
        assert_eq!(elsewhere("0000:3b:02.1"), Some(Elsewhere::Netns));
        assert_eq!(elsewhere("0000:3b:02.2"), None, "no driver has it");
        symlink("/sys/bus/pci/drivers/vfio-pci", devices.join("0000:3b:02.2/driver")).unwrap();
        assert_eq!(elsewhere("0000:3b:02.2"), Some(Elsewhere::Driver("vfio-pci".to_owned())));
        assert_eq!(elsewhere("0000:3b:02.3"), None);
        assert!(hands_devices_away("mlx5_vfio_pci") && !hands_devices_away("mlx5_core"));
        // A virtio card's links are a directory deeper, and it is known by its PCI device.
        machine.device("0000:3b:03.0", &[]);
        fs::remove_dir(devices.join("0000:3b:03.0/net")).unwrap();
        fs::create_dir_all(devices.join("0000:3b:03.0/virtio1/net")).unwrap();
        assert_eq!(elsewhere("0000:3b:03.0"), Some(Elsewhere::Netns));
        fs::create_dir_all(devices.join("0000:3b:03.0/virtio1/net/eth1")).unwrap();
        assert_eq!(elsewhere("0000:3b:03.0"), None);
        let has_links = |device: &str| machine.sysfs().has_links(device);
        assert!(has_links("0000:3b:02.1") && has_links("0000:3b:03.0"));
        assert!(!has_links("0000:3b:02.2") && !has_links("0000:3b:02.3"));
    }
}
