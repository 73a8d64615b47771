//! Settings of the stores of other regions, from which rules with `borrow` take units.

use std::path::Path;
use std::str::FromStr;

use clap::Args;
use tidegate_redis::RedisAddress;
use tidegate_rules::decode::{Field, FieldMap};
use tidegate_rules::diagnostic::FieldError;
use tidegate_rules::yaml::YamlValue;

use super::section::{read_parsed, read_path};
use super::store::{PartialStoreSettings, RedisSettings, StoreSettings};
use super::value::{self, StoreUrl, ValueError};
use crate::error::CommandError;

/// One layer of the stores of other regions. A flag replaces the document's entry for its region.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialRegionStores {
    /// Store of another region, from which rules with `borrow` take units, such as
    /// us=rediss://redis.us.example:6379; may be repeated
    #[arg(
        long = "region-store",
        value_name = "NAME=URL",
        env = "TIDEGATE_REGION_STORE",
        hide_env_values = true,
        value_delimiter = ';'
    )]
    stores: Vec<RegionStoreEntry>,
}

/// The store of one region as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RegionStoreEntry {
    region: String,
    store: PartialStoreSettings,
}

/// The store of another region.
#[derive(Debug)]
pub struct RegionStoreSettings {
    /// The region that owns the store.
    pub region: String,
    /// How to connect to it.
    pub redis: RedisSettings,
}

impl RegionStoreSettings {
    /// A store that needs no credentials. All regions have the same prefix.
    pub fn new(region: &str, address: RedisAddress, prefix: &str) -> Self {
        Self { region: region.to_owned(), redis: RedisSettings::new(address, prefix) }
    }
}

impl PartialRegionStores {
    /// Adds the regions of `below` that are not set.
    #[must_use]
    pub fn with_fallback(mut self, below: Self) -> Self {
        let set = |entry: &RegionStoreEntry| self.stores.iter().any(|it| it.region == entry.region);
        let (_, unset): (Vec<_>, Vec<_>) = below.stores.into_iter().partition(set);
        self.stores.extend(unset);
        self
    }

    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        for entry in &mut self.stores {
            entry.store = std::mem::take(&mut entry.store).resolve_paths(folder);
        }
        self
    }

    /// Reads `region_stores: { us: URL, ap: { url: URL, … } }`.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let field = fields.take("region_stores");
        let named = field.and_then(|field| field.fields());
        let named: Vec<_> = named.iter().flat_map(FieldMap::all_fields).collect();
        let stores = named.iter().filter_map(|(name, _, field)| read_entry(name, field)).collect();
        Self { stores }
    }

    /// Validates the settings and reads the files that they name. `store` is the store of this
    /// node's own region; a region store uses its certificates unless it sets other ones. An entry
    /// of the own region is ignored, so that the same list serves in all regions.
    ///
    /// # Errors
    /// When a store cannot be one of another region, or a file is unreadable.
    pub fn check(
        self,
        region: Option<&str>,
        store: &StoreSettings,
    ) -> Result<Vec<RegionStoreSettings>, CommandError> {
        let Some(first) = self.stores.first() else { return Ok(Vec::new()) };
        let usage = |text: String| Err(CommandError::Usage(text));
        let Some(own_region) = region else {
            return usage(format!(
                "region {} has a store, but this node has no region\n  write: --region NAME, or \
                 `server: {{ region: NAME }}`",
                first.region
            ));
        };
        let StoreSettings::Redis(own) = store else {
            let known = self.stores.iter().find(|entry| entry.region == own_region);
            let url = known.and_then(|entry| Some(entry.store.store.as_ref()?.to_string()));
            return usage(format!(
                "region {} has a store, but the counters of this node are in memory\n  write: \
                 --store {}, the store of region {own_region}",
                first.region,
                url.as_deref().unwrap_or("redis://HOST:6379")
            ));
        };
        let mut checked: Vec<RegionStoreSettings> = Vec::new();
        let others = self.stores.into_iter().filter(|entry| entry.region != own_region);
        for RegionStoreEntry { region, store } in others {
            let redis = check_entry(&region, store, own)?;
            if let Some(other) = checked.iter().find(|other| other.region == region) {
                return usage(two_stores_error(&region, &other.redis, &redis));
            }
            let same = |other: &&RegionStoreSettings| is_same_store(&other.redis, &redis);
            if let Some(other) = checked.iter().find(same) {
                return usage(same_store_error(&region, &other.region, &redis));
            }
            checked.push(RegionStoreSettings { region, redis });
        }
        Ok(checked)
    }
}

fn check_entry(
    region: &str,
    mut typed: PartialStoreSettings,
    own: &RedisSettings,
) -> Result<RedisSettings, CommandError> {
    let Some(StoreUrl::Redis(address)) = typed.store.take() else {
        return Err(CommandError::Usage(format!(
            "region {region}: memory is not shared, so no other node can use it\n  write: \
             --region-store {region}=redis://HOST:6379"
        )));
    };
    let name = |setting: &str| format!("region_stores.{region}.{setting}");
    let mut redis = RedisSettings::check(address, &typed, || None, name)?;
    if is_same_store(&redis, own) {
        return Err(CommandError::Usage(format!(
            "region {region} has the same store as this node, {}\n  write: the store of region \
             {region}; each region has its own",
            own.address
        )));
    }
    if redis.address.tls {
        let (tls, inherited) = (&mut redis.tls, own.tls.clone());
        tls.ca_certificates = tls.ca_certificates.take().or(inherited.ca_certificates);
        tls.identity = tls.identity.take().or(inherited.identity);
    }
    redis.prefix.clone_from(&own.prefix);
    Ok(redis)
}

fn is_same_store(one: &RedisSettings, other: &RedisSettings) -> bool {
    let (one, other) = (&one.address, &other.address);
    one.topology == other.topology && one.database == other.database
}

fn same_store_error(region: &str, other: &str, redis: &RedisSettings) -> String {
    format!(
        "regions {other} and {region} have the same store, {}\n  write: a store for each region",
        redis.address
    )
}

fn two_stores_error(region: &str, one: &RedisSettings, other: &RedisSettings) -> String {
    format!(
        "region {region} has two stores, {} and {}\n  write: --region-store {region}=URL once",
        one.address, other.address
    )
}

/// Reads a URL, or a mapping with a URL, credentials and certificates.
fn read_entry(name: &str, field: &Field<'_>) -> Option<RegionStoreEntry> {
    let region = read_region_name(name, field);
    let mut store = PartialStoreSettings::default();
    if matches!(field.node().value, YamlValue::Scalar { .. }) {
        store.store = Some(read_parsed(field)?);
    } else {
        let mut fields = field.fields()?;
        let url = fields.require("url", "`url: redis://HOST:6379`");
        let user = fields.take("user");
        let mut file = |name| fields.take(name).and_then(|field| read_path(&field));
        store.store_password_file = file("password_file");
        store.store_ca_file = file("ca_file");
        store.store_cert_file = file("cert_file");
        store.store_key_file = file("key_file");
        store.store_user = user.and_then(|field| Some(field.non_empty_text()?.to_owned()));
        fields.finish();
        store.store = Some(read_parsed(&url?)?);
    }
    Some(RegionStoreEntry { region: region?, store })
}

fn read_region_name(name: &str, field: &Field<'_>) -> Option<String> {
    let error =
        |error: ValueError| FieldError::new(error.message).with_found(name).with_hint(error.hint);
    field.ok_or_report(value::parse_region(name).map_err(error))
}

/// Parses `NAME=URL`.
impl FromStr for RegionStoreEntry {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((region, url)) = text.split_once('=') else {
            return Err(ValueError {
                message: "the name of the region is missing".to_owned(),
                hint: "NAME=URL, such as `us=redis://redis.us.example:6379`",
            });
        };
        if url.matches("://").count() > 1 {
            return Err(ValueError {
                message: "this entry has more than one URL".to_owned(),
                hint: "--region-store once for each region; separate the entries of \
                       TIDEGATE_REGION_STORE with `;`",
            });
        }
        let store =
            PartialStoreSettings { store: Some(url.parse()?), ..PartialStoreSettings::default() };
        Ok(Self { region: value::parse_region(region)?, store })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(url: &str) -> StoreSettings {
        let typed =
            PartialStoreSettings { store: Some(url.parse().unwrap()), ..Default::default() };
        StoreSettings::check(typed).unwrap()
    }

    fn stores(entries: &[&str]) -> PartialRegionStores {
        PartialRegionStores { stores: entries.iter().map(|entry| entry.parse().unwrap()).collect() }
    }

    fn check_error(entries: &[&str], region: Option<&str>, own: &str) -> String {
        stores(entries).check(region, &store(own)).expect_err("a mistake").to_string()
    }

    #[test]
    fn mistaken_region_stores_give_hint() {
        let us = ["us=redis://us"];
        for (entries, region, own, expected) in [
            (&us[..], None, "redis://eu", "write: --region NAME"),
            (&us, Some("eu"), "memory", "--store redis://HOST:6379, the store of region eu"),
            (&us, Some("us"), "memory", "--store redis://us:6379, the store of region us"),
            (&us, Some("eu"), "redis://us", "region us has the same store as this node"),
            (&["us=memory"], Some("eu"), "redis://eu", "write: --region-store us=redis://"),
            (
                &["us=redis://a", "us=redis://b"],
                Some("eu"),
                "redis://eu",
                "region us has two stores, redis://a:6379 and redis://b:6379",
            ),
            (
                &["us=redis://a:x@h", "ap=redis://h"],
                Some("eu"),
                "redis://eu",
                "regions us and ap have the same store",
            ),
        ] {
            let error = check_error(entries, region, own);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn region_store_text_names_region_and_url() {
        for (text, expected) in [
            ("redis://h", "the name of the region is missing"),
            ("u s=redis://h", "not the name of a region"),
            ("us=http://h", "unknown store type"),
            ("us=redis://h,ap=redis://i", "separate the entries of TIDEGATE_REGION_STORE with `;`"),
        ] {
            let error = text.parse::<RegionStoreEntry>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn flag_replaces_document_entry_of_its_region() {
        let merged = stores(&["us=redis://flag"])
            .with_fallback(stores(&["us=redis://file", "ap=redis://ap"]));
        let checked = merged.check(Some("eu"), &store("redis://eu/0")).unwrap();
        let urls: Vec<_> = checked.iter().map(|it| it.redis.address.to_string()).collect();
        assert_eq!(urls, ["redis://flag:6379", "redis://ap:6379"]);
    }

    #[test]
    fn entry_of_own_region_is_ignored() {
        let all = || stores(&["eu=redis://eu", "us=redis://us", "ap=redis://ap"]);
        for (region, own, expected) in
            [("eu", "redis://eu", ["us", "ap"]), ("us", "redis://10.0.0.1", ["eu", "ap"])]
        {
            let checked = all().check(Some(region), &store(own)).unwrap();
            let regions: Vec<_> = checked.iter().map(|it| it.region.as_str()).collect();
            assert_eq!(regions, expected, "{region}");
        }
        // Its password file exists only on the nodes of that region.
        let mut own = stores(&["eu=redis://eu"]);
        own.stores[0].store.store_password_file = Some("/no".into());
        assert!(own.check(Some("eu"), &store("redis://eu")).unwrap().is_empty());
    }

    #[test]
    fn region_store_shares_prefix_but_no_password() {
        let own = PartialStoreSettings {
            store: Some("redis://user:secret@eu".parse().unwrap()),
            store_prefix: Some("mine:".to_owned()),
            ..Default::default()
        };
        let own = StoreSettings::check(own).unwrap();
        let checked = stores(&["us=redis://us"]).check(Some("eu"), &own).unwrap();
        assert_eq!(checked[0].redis.prefix, "mine:");
        assert_eq!(
            (&checked[0].redis.address.user, &checked[0].redis.address.password),
            (&None, &None)
        );
    }
}
