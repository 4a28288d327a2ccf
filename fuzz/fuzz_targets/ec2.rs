//! Any bytes as EC2's answers: nothing panics, what is read is the same when it was written down as EC2 does and read
//! again, and the words of a refusal have nothing of what only AWS can read.
#![no_main]

/// Two modules of it, which need no cloud.
#[path = "../../crates/agent/src/cloud"]
mod cloud {
    pub mod aws {
        // Who makes calls looks at these too.
        #[allow(dead_code)]
        mod answers;

        use std::net::IpAddr;

        use super::{Interface, Table};

        pub type Found<T> = Result<(Vec<T>, Option<String>), String>;

        pub fn tables(body: &[u8]) -> Found<Table> {
            Ok(answers::read::<answers::RouteTablesAnswer>(body)?.read())
        }

        pub fn interfaces(body: &[u8], instance: &str) -> Found<(Interface, Vec<IpAddr>)> {
            Ok(answers::read::<answers::InterfacesAnswer>(body)?.read(instance))
        }

        pub fn is_done(body: &[u8]) -> Result<(), String> {
            answers::read::<answers::Done>(body)?.check()
        }

        pub fn refusal(body: &[u8]) -> Option<(String, String)> {
            answers::refusal(body)
        }
    }
    mod error {
        /// What the user is told of a full table is nothing that is read.
        pub const RAISE_QUOTA: &str = "";
    }
    // Calls are not made here, and the lints are those of the crate to which it belongs.
    #[allow(dead_code, unfulfilled_lint_expectations)]
    mod table;

    pub use table::{Interface, Route, Table};
}

use std::fmt::Write as _;
use std::net::IpAddr;

use cloud::{Interface, Route, Table, aws};
use libfuzzer_sys::fuzz_target;

const INSTANCE: &str = "i-0123456789abcdef0";

fuzz_target!(|input: &[u8]| {
    if let Ok((tables, next)) = aws::tables(input) {
        for table in &tables {
            assert!(table.routes.iter().all(|route| route.prefix == route.prefix.trunc()));
        }
        let written = written_tables(&tables, next.as_deref());
        let (again, next_again) = aws::tables(written.as_bytes()).expect("it was written here");
        assert_eq!((of_tables(&again), next_again), (of_tables(&tables), next), "{written}");
    }
    if let Ok((interfaces, next)) = aws::interfaces(input, INSTANCE) {
        assert!(interfaces.iter().all(|(interface, _)| interface.instance == INSTANCE));
        let written = written_interfaces(&interfaces, next.as_deref());
        let again = aws::interfaces(written.as_bytes(), INSTANCE);
        assert_eq!(again, Ok((interfaces, next)), "{written}");
    }
    if let Some((_, words)) = aws::refusal(input) {
        assert!(!words.contains("Encoded authorization failure message") && !words.ends_with('.'), "{words}");
    }
    let _ = aws::is_done(input);
});

/// Of tables what their routes say. Of those that lead to lists of prefixes nothing is left to be
/// written but their number.
fn of_tables(tables: &[Table]) -> Vec<(&str, &[Route])> {
    tables.iter().map(|table| (table.id.as_str(), table.routes.as_slice())).collect()
}

fn written_tables(tables: &[Table], next: Option<&str>) -> String {
    let mut text = "<DescribeRouteTablesResponse><routeTableSet>".to_owned();
    for Table { id, routes, .. } in tables {
        text += "<item>";
        element(&mut text, "routeTableId", id);
        text += "<routeSet>";
        routes.iter().for_each(|route| write_route(&mut text, route));
        text += "</routeSet></item>";
    }
    text += "</routeTableSet>";
    next.into_iter().for_each(|next| element(&mut text, "nextToken", next));
    text + "</DescribeRouteTablesResponse>"
}

fn write_route(text: &mut String, route: &Route) {
    *text += "<item>";
    let family =
        if route.prefix.addr().is_ipv6() { "destinationIpv6CidrBlock" } else { "destinationCidrBlock" };
    element(text, family, &route.prefix.to_string());
    element(text, "gatewayId", &route.target);
    route.instance.iter().for_each(|instance| element(text, "instanceId", instance));
    element(text, "state", if route.is_dead { "blackhole" } else { "active" });
    element(text, "origin", if route.is_static { "CreateRoute" } else { "CreateRouteTable" });
    *text += "</item>";
}

fn written_interfaces(interfaces: &[(Interface, Vec<IpAddr>)], next: Option<&str>) -> String {
    let mut text = "<DescribeNetworkInterfacesResponse><networkInterfaceSet>".to_owned();
    for (interface, addresses) in interfaces {
        text += "<item>";
        element(&mut text, "networkInterfaceId", &interface.id);
        element(&mut text, "subnetId", &interface.subnet);
        element(&mut text, "vpcId", &interface.vpc);
        interface.account.iter().for_each(|account| element(&mut text, "ownerId", account));
        element(&mut text, "sourceDestCheck", &interface.checks_source.to_string());
        text += "<privateIpAddressesSet>";
        for address in addresses {
            write!(text, "<item><privateIpAddress>{address}</privateIpAddress></item>")
                .expect("it is a text");
        }
        text += "</privateIpAddressesSet></item>";
    }
    text += "</networkInterfaceSet>";
    next.into_iter().for_each(|next| element(&mut text, "nextToken", next));
    text + "</DescribeNetworkInterfacesResponse>"
}

/// An element of text. White space is written as what it is: around a text it would not be read.
fn element(text: &mut String, name: &str, content: &str) {
    *text += &format!("<{name}>");
    for sign in content.chars() {
        match sign {
            '<' | '>' | '&' | '\'' | '"' => *text += &format!("&#{};", u32::from(sign)),
            _ if sign.is_whitespace() => *text += &format!("&#{};", u32::from(sign)),
            _ => text.push(sign),
        }
    }
    *text += &format!("</{name}>");
}
