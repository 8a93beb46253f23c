/* Malformed machine profiles: where each is refused, and what the refusal says. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/machine.h"

/* A good profile with one part replaced. Quotes are single, for the reader's sake. */
#define HOST_LINE "{'memory_gbs': 40}"
#define DEVICES_LINE "[{'name': 'CUDA0', 'gpu': 'RTX 4070'}]"
#define LINKS_LINE "[{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x16'}]"
#define PROFILE(head, host, devices, links, more)                                                  \
    "{" head ",\n 'host': " host ",\n 'devices': " devices ",\n 'links': " links more "}\n"
#define HEAD_LINE "'lopside_machine': 1, 'name': 'm'"
#define HEAD(head) PROFILE(head, HOST_LINE, DEVICES_LINE, LINKS_LINE, "")
#define HOST(host) PROFILE(HEAD_LINE, host, DEVICES_LINE, LINKS_LINE, "")
#define DEVICES(devices) PROFILE(HEAD_LINE, HOST_LINE, devices, LINKS_LINE, "")
#define LINKS(links) PROFILE(HEAD_LINE, HOST_LINE, DEVICES_LINE, links, "")
#define MORE(more) PROFILE(HEAD_LINE, HOST_LINE, DEVICES_LINE, LINKS_LINE, ",\n " more)
#define FROM(more) "{" HEAD_LINE ", 'from': 'rtx4070-gen4x16+rtx3060-gen3x4',\n " more "}\n"
#define KERNELS(tables) "'kernels': {" tables "}"
#define CARD "'GeForce RTX 4070': "

static const struct {
    const char *name, *profile;
    int line, column;
    const char *text;
} refusals[] = {
    {"not JSON", "{'lopside_machine': 1,", 1, 23,
     "not JSON: string or '}' expected near end of text"},
    {"not an object", "[1]\n", 1, 1, "a list is not an object"},
    {"no version", "{'name': 'm'}\n", 1, 1,
     "lopside_machine: missing; a version (a whole number) belongs here"},
    {"a version as text", HEAD("'lopside_machine': '1', 'name': 'm'"), 1, 21,
     "lopside_machine: \"1\" is not a version; a whole number is"},
    {"a later version", HEAD("'lopside_machine': 2, 'name': 'm'"), 1, 21,
     "lopside_machine: version 2 of the format is not known here; 1 is"},
    {"no name", HEAD("'lopside_machine': 1"), 1, 1,
     "name: missing; a name (a string) belongs here"},
    {"an empty name", HEAD("'lopside_machine': 1, 'name': ''"), 1, 32,
     "name: empty; a name belongs here"},
    {"an unknown key", MORE("'device': []"), 5, 2, "device: unknown key; did you mean devices?"},
    {"a source that is a number", MORE("'sources': {'CUDA0': 5}"), 5, 23,
     "sources.CUDA0: 5 is not a source; a string is"},
    {"no host",
     "{'lopside_machine': 1, 'name': 'm',\n 'devices': [{'name': 'CUDA0', 'gpu': 'RTX 4070'}],\n "
     "'links': [{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x16'}]}\n",
     1, 1, "host: missing; an object belongs here"},
    {"no host memory", HOST("{'cpu': 'x'}"), 2, 10,
     "host.memory_gbs: missing; a bandwidth in GB/s (a number above 0 and up to 100000) belongs "
     "here"},
    {"host bandwidth in MB/s", HOST("{'memory_mbs': 40000}"), 2, 11,
     "host.memory_mbs: unknown key; did you mean memory_gbs, in GB/s (1e9 bytes per second)?"},
    {"a negative host bandwidth", HOST("{'memory_gbs': -40}"), 2, 25,
     "host.memory_gbs: -40 is not a bandwidth in GB/s; a number above 0 and up to 100000 is"},
    {"threads that are not whole", HOST("{'memory_gbs': 40, 'threads': 2.5}"), 2, 40,
     "host.threads: 2.5 is not a number of threads; a whole number from 1 to 4096 is"},
    {"a launch time in ns", HOST("{'memory_gbs': 40, 'launch_ns': 3000}"), 2, 29,
     "host.launch_ns: unknown key; did you mean launch_us, in microseconds?"},
    {"an endless launch time", HOST("{'memory_gbs': 40, 'launch_us': 1e9}"), 2, 42,
     "host.launch_us: 1e+09 is not a time in microseconds; a number from 0 to 10000 is"},
    {"no devices", DEVICES("[]"), 3, 13, "devices: 0 devices are not a machine; 1 to 16 are"},
    {"devices that are no list", DEVICES("{}"), 3, 13, "devices: an object is not a list"},
    {"a device without a name", DEVICES("[{'gpu': 'RTX 4070'}]"), 3, 14,
     "devices[0].name: missing; a device's name (a string) belongs here"},
    {"a device with a name that is too long",
     DEVICES("[{'name': 'a_very_long_device_name', 'gpu': 'RTX 4070'}]"), 3, 23,
     "devices[0].name: 23 bytes are too long; a device's name has at most 15"},
    {"a device with a dash in its name", DEVICES("[{'name': 'CUDA-0', 'gpu': 'RTX 4070'}]"), 3, 23,
     "devices[0].name: \"CUDA-0\" cannot name a node; letters, digits and _ can"},
    {"two devices of one name",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070'},\n  {'name': 'CUDA0', 'gpu': 'RTX 3090'}]"), 4,
     12, "devices[1].name: \"CUDA0\" is taken; each node has its own name"},
    {"a device called host", DEVICES("[{'name': 'host', 'gpu': 'RTX 4070'}]"), 3, 23,
     "devices[0].name: \"host\" is taken; each node has its own name"},
    {"an unknown GPU", DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4079'}]"), 3, 39,
     "devices[0].gpu: \"RTX 4079\" is no GPU of the catalogue; did you mean \"RTX 4070\"?"},
    {"a GPU that could be several", DEVICES("[{'name': 'CUDA0', 'gpu': 'H100'}]"), 3, 39,
     "devices[0].gpu: \"H100\" fits several GPUs: H100 PCIe and H100 SXM"},
    {"a GPU with a key in another unit",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070', 'memory_gib': 12}]"), 3, 51,
     "devices[0].memory_gib: unknown key; did you mean memory_mib, in MiB (1048576 bytes)?"},
    {"a device bandwidth in MB/s",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070', 'bandwidth_mbs': 504000}]"), 3, 51,
     "devices[0].bandwidth_mbs: unknown key; known here: name, gpu, family, compute_capability, "
     "memory_mib, other_mib, l2_mib, sm_count, int8_tensor_cores, fp16_tensor_cores, memory_gbs, "
     "clock_mhz, "
     "fp32_tflops, fp16_tflops and int8_tops"},
    {"no figures and no GPU", DEVICES("[{'name': 'CUDA0', 'family': 'ada'}]"), 3, 14,
     "devices[0].memory_mib: missing; a size in MiB (a whole number from 1 to 16777216) belongs "
     "here"},
    {"one figure missing",
     DEVICES("[{'name': 'CUDA0', 'family': 'ada', 'memory_mib': 8000, 'memory_gbs': 500, "
             "'sm_count': 46, 'clock_mhz': 2475, 'fp32_tflops': 29, 'int8_tops': 233}]"),
     3, 14,
     "devices[0].fp16_tflops: missing; a rate in TFLOPS (a number above 0 and up to 100000) "
     "belongs here"},
    {"a figure that is 0",
     DEVICES(
         "[{'name': 'CUDA0', 'family': 'ada', 'memory_mib': 8000, 'memory_gbs': 500, 'sm_count': "
         "46, 'clock_mhz': 2475, 'fp32_tflops': 0, 'fp16_tflops': 58, 'int8_tops': 233}]"),
     3, 138,
     "devices[0].fp32_tflops: 0 is not a rate in TFLOPS; a number above 0 and up to 100000 is"},
    {"neither family nor compute capability",
     DEVICES("[{'name': 'CUDA0', 'memory_mib': 8000, 'memory_gbs': 500, 'sm_count': 46, "
             "'clock_mhz': 2475, 'fp32_tflops': 29, 'fp16_tflops': 58, 'int8_tops': 233}]"),
     3, 14, "devices[0].family: missing; a family (a string) belongs here"},
    {"an unknown family",
     DEVICES(
         "[{'name': 'CUDA0', 'family': 'adda', 'memory_mib': 8000, 'memory_gbs': 500, 'sm_count': "
         "46, 'clock_mhz': 2475, 'fp32_tflops': 29, 'fp16_tflops': 58, 'int8_tops': 233}]"),
     3, 42,
     "devices[0].family: \"adda\" is no family; did you mean \"ada\"? known: ada, ampere, hopper, "
     "blackwell, turing, volta, pascal, cdna and rdna"},
    {"a compute capability as a number",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070', 'compute_capability': 8.9}]"), 3, 73,
     "devices[0].compute_capability: 8.9 is not a version; a string is"},
    {"a compute capability of no such form",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070', 'compute_capability': 'sm_89'}]"), 3, 73,
     "devices[0].compute_capability: \"sm_89\" is not a compute capability; a version such as "
     "\"8.9\" is (leave it out for other vendors)"},
    {"no links",
     "{'lopside_machine': 1, 'name': 'm',\n 'host': {'memory_gbs': 40},\n 'devices': [{'name': "
     "'CUDA0', 'gpu': 'RTX 4070'}]}\n",
     1, 1, "links: missing; a list belongs here"},
    {"a link to nowhere", LINKS("[{'from': 'host', 'to': 'CUDA1', 'link': 'gen4x16'}]"), 4, 35,
     "links[0].to: \"CUDA1\" is not a node; did you mean \"CUDA0\" (known: host and CUDA0)?"},
    {"a link from nowhere", LINKS("[{'from': 'plx0', 'to': 'CUDA0', 'link': 'gen4x16'}]"), 4, 21,
     "links[0].from: \"plx0\" is not a node; known: host and CUDA0"},
    {"a link to where it starts", LINKS("[{'from': 'host', 'to': 'host', 'link': 'gen4x16'}]"), 4,
     35, "links[0].to: a link joins two nodes, and \"host\" is where it starts"},
    {"a link towards the host", LINKS("[{'from': 'CUDA0', 'to': 'host', 'link': 'gen4x16'}]"), 4,
     12, "links[0]: points towards the host; from \"host\" to \"CUDA0\" is how it is written"},
    {"two links between two nodes",
     LINKS("[{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x16'},\n  {'from': 'CUDA0', 'to': "
           "'host', 'link': 'gen4x16'}]"),
     5, 3, "links[1]: links[0] joins \"CUDA0\" and \"host\" already"},
    {"an unknown link class", LINKS("[{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x17'}]"), 4, 52,
     "links[0].link: \"gen4x17\" is no link class; did you mean \"gen4x1\"? known: gen3x1, gen3x2, "
     "gen3x4, gen3x8, gen3x16, gen4x1, gen4x2, gen4x4, gen4x8, gen4x16, gen5x1, gen5x4, gen5x8, "
     "gen5x16, c2c, nvlink3x4, nvlink3x12, nvlink4x12, nvlink4x18 and nvlink5x18"},
    {"neither class nor bandwidth", LINKS("[{'from': 'host', 'to': 'CUDA0'}]"), 4, 12,
     "links[0]: neither \"link\" nor \"down_gbs\"; a class such as \"gen4x16\" or a bandwidth "
     "belongs here"},
    {"a negative bandwidth", LINKS("[{'from': 'host', 'to': 'CUDA0', 'down_gbs': -32}]"), 4, 56,
     "links[0].down_gbs: -32 is not a bandwidth in GB/s; a number above 0 and up to 100000 is"},
    {"a bandwidth in Gbit/s", LINKS("[{'from': 'host', 'to': 'CUDA0', 'down_gb': 32}]"), 4, 44,
     "links[0].down_gb: unknown key; did you mean down_gbs, in GB/s (1e9 bytes per second)?"},
    {"a bandwidth as text", LINKS("[{'from': 'host', 'to': 'CUDA0', 'down_gbs': '32 GB/s'}]"), 4,
     56,
     "links[0].down_gbs: \"32 GB/s\" is not a bandwidth in GB/s; a number above 0 and up to 100000 "
     "is"},
    {"duplex below one direction",
     LINKS("[{'from': 'host', 'to': 'CUDA0', 'down_gbs': 32, 'duplex_gbs': 20}]"), 4, 74,
     "links[0].duplex_gbs: both directions together move 20 GB/s, less than one alone (32); at "
     "least that is needed"},
    {"a latency in ms",
     LINKS("[{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x16', 'latency_ms': 1}]"), 4, 63,
     "links[0].latency_ms: unknown key; did you mean latency_us, in microseconds?"},
    {"a device without a way to the host",
     DEVICES("[{'name': 'CUDA0', 'gpu': 'RTX 4070'}, {'name': 'CUDA1', 'gpu': 'RTX 3090'}]"), 4, 11,
     "links: no way from \"host\" to \"CUDA1\"; a link {\"from\": \"host\", \"to\": \"CUDA1\", "
     "...} or one behind a switch is needed"},
    {"a way that leads through a device",
     "{'lopside_machine': 1, 'name': 'm',\n 'host': {'memory_gbs': 40},\n 'devices': [{'name': "
     "'CUDA0', 'gpu': 'RTX 4070'}, {'name': 'CUDA1', 'gpu': 'RTX 3090'}],\n 'links': [{'from': "
     "'host', 'to': 'CUDA0', 'link': 'gen4x16'}, {'from': 'CUDA0', 'to': 'CUDA1', 'link': "
     "'gen4x8'}]}\n",
     4, 11,
     "links: no way from \"host\" to \"CUDA1\"; a link {\"from\": \"host\", \"to\": \"CUDA1\", "
     "...} or one behind a switch is needed"},
    {"a link between switches that nothing reaches",
     LINKS("[{'from': 'host', 'to': 'CUDA0', 'link': 'gen4x16'},\n  {'from': 'plx0', 'to': 'plx1', "
           "'link': 'gen4x16'}],\n 'switches': ['plx0', 'plx1']"),
     5, 3, "links[1]: no way from \"host\" to \"plx0\""},
    {"a switch of a name that is taken", MORE("'switches': ['CUDA0']"), 5, 15,
     "switches[0]: \"CUDA0\" is taken; each node has its own name"},
    {"a switch that is a number", MORE("'switches': [7]"), 5, 15,
     "switches[0]: 7 is not a switch's name; a string is"},
    {"a ratio above 1", MORE("'collective': {'ratio': 1.5}"), 5, 26,
     "collective.ratio: 1.5 is not a share; a number above 0 and up to 1 is"},
    {"an unknown key of collective", MORE("'collective': {'bandwidth_gbs': 3}"), 5, 17,
     "collective.bandwidth_gbs: unknown key; known here: basis, latency_us and ratio"},
    {"a family that is not built in", MORE("'families': {'lovelace': {}}"), 5, 27,
     "families.lovelace: \"lovelace\" is no family; known: ada, ampere, hopper, blackwell, turing, "
     "volta, pascal, cdna and rdna"},
    {"a family share in percent", MORE("'families': {'ada': {'memory_percent': 90}}"), 5, 23,
     "families.ada.memory_percent: unknown key; did you mean memory_ratio, in a share between 0 "
     "and 1?"},
    {"a family rate of an unknown class",
     MORE("'families': {'ada': {'matvec_rate': {'kquant': 20}}}"), 5, 39,
     "families.ada.matvec_rate.kquant: unknown key; did you mean k_quant?"},
    {"a rate above what dp4a does", MORE("'families': {'ada': {'matvec_rate': {'k_quant': 600}}}"),
     5, 50,
     "families.ada.matvec_rate.k_quant: 600 is not a decoding rate; a number above 0 and up to 512 "
     "is"},
    {"a family group that is a number", MORE("'families': {'ada': {'matvec_rate': 20}}"), 5, 38,
     "families.ada.matvec_rate: 20 is not an object"},
    {"memory in bytes", MORE("'memory': {'context_bytes': 300}"), 5, 13,
     "memory.context_bytes: unknown key; did you mean context_mib, in MiB (1048576 bytes)?"},
    {"a variant for another device",
     MORE("'variants': {'oc': {'devices': {'CUDA1': {'memory_gbs': 1}}}}"), 5, 43,
     "variants.oc.devices.CUDA1: is no device of this machine; known: CUDA0"},
    {"a variant called stock", MORE("'variants': {'stock': {}}"), 5, 24,
     "variants.stock: \"stock\" cannot name a variant; 1 to 23 bytes other than \"stock\" can"},
    {"a variant that nobody asked for, with a wrong unit",
     MORE("'variants': {'oc': {'devices': {'CUDA0': {'clock_ghz': 2.6}}}}"), 5, 44,
     "variants.oc.devices.CUDA0.clock_ghz: unknown key; did you mean clock_mhz, in MHz?"},
    {"a variant for another link", MORE("'variants': {'oc': {'links': {'plx0': {'down_gbs': 1}}}}"),
     5, 40, "variants.oc.links.plx0: is no link of this machine; known: CUDA0"},
    {"a fitted row that is a number", MORE("'fitted': {'rows': [12]}"), 5, 22,
     "fitted.rows[0]: 12 is not a row's id; a string is"},
    {"a fitted row with a long id",
     MORE("'fitted': {'rows': ['an-id-that-is-far-longer-than-any-id-of-ours']}"), 5, 22,
     "fitted.rows[0]: a row's id has 1 to 31 bytes, not 44"},
    {"a fitted constant of another family",
     MORE("'fitted': {'constants': [{'name': 'ampere.kernel_us', 'value': 2, 'unit': 'us'}]}"), 5,
     36,
     "fitted.constants[0].name: \"ampere.kernel_us\" is no constant of this machine; did you mean "
     "\"ada.kernel_us\"?"},
    {"a fitted constant in another unit",
     MORE("'fitted': {'constants': [{'name': 'ada.kernel_us', 'value': 2, 'unit': 'ms'}]}"), 5, 73,
     "fitted.constants[0].unit: \"ms\" is not the unit of ada.kernel_us; \"us\" is"},
    {"a fitted constant beyond its bounds",
     MORE("'fitted': {'constants': [{'name': 'CUDA0.down_gbs', 'value': 40, 'unit': 'GB/s'}]}"), 5,
     63,
     "fitted.constants[0].value: 40 is not a value of this constant; a number from 0.001 to 31.504 "
     "is"},
    {"a fitted constant without a value",
     MORE("'fitted': {'constants': [{'name': 'ada.kernel_us', 'unit': 'us'}]}"), 5, 27,
     "fitted.constants[0].value: missing; a value of this constant (a number from 0 to 1000) "
     "belongs here"},
    {"kernels of a GPU that no device is", MORE(KERNELS("'GeForce RTX 4060': {}")), 5, 34,
     "kernels[\"GeForce RTX 4060\"]: is no GPU of this machine; did you mean \"GeForce RTX 4070\"? "
     "known: GeForce RTX 4070"},
    {"an unknown part of a kernel table", MORE(KERNELS(CARD "{'product': []}")), 5, 35,
     "kernels[\"GeForce RTX 4070\"].product: unknown key; did you mean products?"},
    {"measured products that are no list", MORE(KERNELS(CARD "{'products': {}}")), 5, 47,
     "kernels[\"GeForce RTX 4070\"].products: an object is not a list"},
    {"a measured product that is a number", MORE(KERNELS(CARD "{'products': [1]}")), 5, 48,
     "kernels[\"GeForce RTX 4070\"].products[0]: 1 is not an object"},
    {"a measured product in another unit",
     MORE(KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, "
                       "'launch_ns': 2000, 'gbs': 9}]}")),
     5, 96,
     "kernels[\"GeForce RTX 4070\"].products[0].launch_ns: unknown key; did you mean launch_us, in "
     "microseconds?"},
    {"a measured product of another kind",
     MORE(KERNELS(CARD "{'products': [{'kind': 'norm', 'type': 'Q8_0', 'tokens': 1, "
                       "'launch_us': 2, 'gbs': 9}]}")),
     5, 57,
     "kernels[\"GeForce RTX 4070\"].products[0].kind: \"norm\" is not a kind of task here; known: "
     "matmul and experts"},
    {"a measured product with a type that is none",
     MORE(KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'q8_0', 'tokens': 1, "
                       "'launch_us': 2, 'gbs': 9}]}")),
     5, 75,
     "kernels[\"GeForce RTX 4070\"].products[0].type: \"q8_0\" is not a tensor type; did you mean "
     "\"Q8_0\" (known: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
     "Q8_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, I8, I16, I32, I64, F64, "
     "IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0 and Q2_0)?"},
    {"a measured product of no tokens",
     MORE(KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 0, "
                       "'launch_us': 2, 'gbs': 9}]}")),
     5, 93,
     "kernels[\"GeForce RTX 4070\"].products[0].tokens: 0 is not a number of tokens; a whole "
     "number "
     "from 1 to 1048576 is"},
    {"a measured product that reads nothing",
     MORE(KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, "
                       "'launch_us': 2, 'gbs': 0}]}")),
     5, 119,
     "kernels[\"GeForce RTX 4070\"].products[0].gbs: 0 is not a bandwidth in GB/s; a number from "
     "0.001 to 100000 is"},
    {"a measured product without its launch",
     MORE(
         KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, 'gbs': 9}]}")),
     5, 48,
     "kernels[\"GeForce RTX 4070\"].products[0].launch_us: missing; a time in microseconds (a "
     "number "
     "from 0 to 10000) belongs here"},
    {"a product measured twice",
     MORE(KERNELS(CARD
                  "{'products': [\n"
                  "{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, 'launch_us': 2, 'gbs': 9},\n"
                  "{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, 'launch_us': 2, 'gbs': 8}]}")),
     7, 1, "kernels[\"GeForce RTX 4070\"].products[1]: measured in a row before; once is enough"},
    {"a measured attention without a window",
     MORE(KERNELS(CARD "{'attention': [{'cache': 'F16', 'kv_heads': 8, 'tokens': 1, 'us': 9.7}]}")),
     5, 49,
     "kernels[\"GeForce RTX 4070\"].attention[0].cells: missing; a number of cells (a whole number "
     "from 1 to 4294967296) belongs here"},
    {"a measured attention with more KV heads than query heads",
     MORE(KERNELS(CARD "{'attention': [{'cache': 'F16', 'kv_heads': 40, 'tokens': 1, 'cells': 256, "
                       "'us': 9}]}")),
     5, 78,
     "kernels[\"GeForce RTX 4070\"].attention[0].kv_heads: 40 is not a number of KV heads, of 32 "
     "query heads; a whole number from 1 to 32 is"},
    {"a measured product that loads less than nothing ahead",
     MORE(KERNELS(CARD "{'products': [{'kind': 'matmul', 'type': 'Q8_0', 'tokens': 1, "
                       "'launch_us': 2, 'gbs': 8, 'ahead_mib': -1}]}")),
     5, 135,
     "kernels[\"GeForce RTX 4070\"].products[0].ahead_mib: -1 is not a size in MiB; a number from "
     "0 "
     "to 1e+06 is"},
    {"a measured attention that takes no time",
     MORE(KERNELS(CARD "{'attention': [{'cache': 'F16', 'kv_heads': 8, 'tokens': 1, 'cells': 256, "
                       "'us': 0}]}")),
     5, 114,
     "kernels[\"GeForce RTX 4070\"].attention[0].us: 0 is not a time in microseconds; a number "
     "from "
     "0.001 to 1e+08 is"},
    {"other kernels by their rate",
     MORE(KERNELS(CARD "{'other': [{'kind': 'norm', 'tokens': 1, 'launch_us': 2.5, 'gbs': 9}]}")),
     5, 75,
     "kernels[\"GeForce RTX 4070\"].other[0].launch_us: unknown key; known here: kind, behind, "
     "head_dim, normed, tokens, bytes and us"},
    {"a product among the other kernels",
     MORE(KERNELS(CARD "{'other': [{'kind': 'matmul', 'tokens': 1, 'bytes': 9, 'us': 9}]}")), 5, 54,
     "kernels[\"GeForce RTX 4070\"].other[0].kind: \"matmul\" is not a kind of task here; known: "
     "embed, kv-store, sync, wait, input, kv-rows, logits, norm, router, rope, delta-net, glu and "
     "add"},
    {"a sum over one device",
     MORE(KERNELS(CARD "{'sums': [{'devices': 1, 'bytes': 40960, 'us': 5.2}]}")), 5, 56,
     "kernels[\"GeForce RTX 4070\"].sums[0].devices: 1 is not a number of devices; a whole number "
     "from 2 to 16 is"},
    {"a sum in KiB", MORE(KERNELS(CARD "{'sums': [{'devices': 2, 'kib': 40, 'us': 5.2}]}")), 5, 59,
     "kernels[\"GeForce RTX 4070\"].sums[0].kib: unknown key; known here: devices, bytes and us"},
    {"kernels of a device that was not kept",
     FROM("'devices_kept': ['CUDA0'],\n " KERNELS("'GeForce RTX 3060 12GB': {}")), 3, 39,
     "kernels[\"GeForce RTX 3060 12GB\"]: is no GPU of this machine; known: GeForce RTX 4070"},
    {"another profile that is not there",
     "{'lopside_machine': 1, 'name': 'm', 'from': 'rtx4071'}\n", 1, 45,
     "from: \"rtx4071\" is no built-in profile; one of those or a file name ending in .json is "
     "needed"},
    {"another profile in a file that is not there",
     "{'lopside_machine': 1, 'name': 'm', 'from': 'no-such-profile.json'}\n", 1, 45,
     "from: \"no-such-profile.json\" cannot be opened: No such file or directory"},
    {"devices beside another profile", FROM("'devices': []"), 2, 2,
     "devices: unknown key; did you mean devices_kept?"},
    {"a device kept that is not there", FROM("'devices_kept': ['CUDA2']"), 2, 19,
     "devices_kept[0]: \"CUDA2\" is not a device of the other profile; did you mean \"CUDA0\" "
     "(known: CUDA0 and CUDA1)?"},
    {"a device kept twice", FROM("'devices_kept': ['CUDA0', 'CUDA0']"), 2, 28,
     "devices_kept[1]: \"CUDA0\" is kept already"},
    {"no device kept", FROM("'devices_kept': []"), 2, 18,
     "devices_kept: 0 devices cannot stay of 2"},
    {"a link changed that went with its device",
     FROM("'devices_kept': ['CUDA0'],\n 'links_changed': {'CUDA1': {'down_gbs': 6}}"), 3, 29,
     "links_changed.CUDA1: is no link of this machine; known: CUDA0"},
    {"a link changed in another unit", FROM("'links_changed': {'CUDA1': {'down_mbs': 6000}}"), 2,
     30,
     "links_changed.CUDA1.down_mbs: unknown key; did you mean down_gbs, in GB/s (1e9 bytes per "
     "second)?"},
    {"a derived profile without a name", "{'lopside_machine': 1, 'from': 'rtx4070-gen4x16'}\n", 1,
     1, "name: missing; a name (a string) belongs here"},
};

/* The same text with double quotes. */
static void quote(const char *text, char *quoted, size_t size)
{
    ck_assert_uint_lt(strlen(text), size);
    strcpy(quoted, text);
    for (char *c = strchr(quoted, '\''); c != NULL; c = strchr(c, '\''))
        *c = '"';
}

START_TEST(a_malformed_profile_is_refused_at_its_place)
{
    struct error err = {0};
    char profile[2000];

    quote(refusals[_i].profile, profile, sizeof profile);
    ck_assert_msg(machine_parse(profile, strlen(profile), "m.json", NULL, &err) == NULL,
                  "%s: accepted", refusals[_i].name);
    ck_assert_msg(err.code == ERROR_INPUT && strcmp(err.source, "m.json") == 0 &&
                      err.line == refusals[_i].line && err.column == refusals[_i].column &&
                      strcmp(err.text, refusals[_i].text) == 0,
                  "%s: %s:%d:%d: %s", refusals[_i].name, err.source, err.line, err.column,
                  err.text);
}
END_TEST

START_TEST(the_profile_that_the_cases_change_is_a_good_one)
{
    struct error err = {0};
    struct machine *machine;
    char profile[2000];

    quote(HEAD(HEAD_LINE), profile, sizeof profile);
    machine = machine_parse(profile, strlen(profile), "m.json", NULL, &err);
    ck_assert_msg(machine != NULL, "%s:%d:%d: %s", err.source, err.line, err.column, err.text);
    machine_free(machine);
}
END_TEST

START_TEST(a_wrong_part_of_the_other_profile_is_placed_in_that_profile)
{
    const char *path = "machine-refusals-base.json";
    const char *text = "{\"lopside_machine\": 1, \"name\": \"m\", \"from\": "
                       "\"machine-refusals-base.json\"}";
    FILE *file = fopen(path, "w");
    struct error err = {0};

    ck_assert_ptr_nonnull(file);
    fputs("{\"lopside_machine\": 1,\n \"name\": 5}\n", file);
    fclose(file);
    ck_assert_ptr_null(machine_parse(text, strlen(text), "m.json", NULL, &err));
    remove(path);
    ck_assert_str_eq(err.source, path);
    ck_assert_int_eq(err.line, 2);
    ck_assert_int_eq(err.column, 10);
    ck_assert_str_eq(err.text, "name: 5 is not a name; a string is");
}
END_TEST

START_TEST(a_profile_that_comes_from_itself_is_refused)
{
    const char *path = "machine-refusals-circle.json";
    FILE *file = fopen(path, "w");
    struct error err = {0};

    ck_assert_ptr_nonnull(file);
    fprintf(file, "{\"lopside_machine\": 1, \"name\": \"m\", \"from\": \"%s\"}\n", path);
    fclose(file);
    ck_assert_ptr_null(machine_open(path, NULL, &err));
    remove(path);
    ck_assert_str_eq(err.text, "from: the 9th profile in a row that comes from another; one that "
                               "comes from itself has no end");
}
END_TEST

START_TEST(an_unknown_variant_is_refused_with_the_known_ones)
{
    struct error err = {0};

    ck_assert_ptr_null(machine_open("rtx4070-gen4x16", "turbo", &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_str_eq(err.source, "rtx4070-gen4x16");
    ck_assert_str_eq(err.text, "\"turbo\" is no variant of this machine; known: stock and oc");
}
END_TEST

START_TEST(an_unknown_name_is_refused_with_the_built_in_ones)
{
    struct error err = {0};

    ck_assert_ptr_null(machine_open("rtx4079", NULL, &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(
        err.text,
        "\"rtx4079\" is neither a built-in machine nor a file; built in: "
        "rtx4070-gen4x16+rtx3060-gen3x4, rtx4070-gen4x16, h200-x2, h200-x2-host and h200");
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    struct error err = {0};

    ck_assert_ptr_null(machine_open("no-such-folder/m.json", NULL, &err));
    ck_assert_int_eq(err.code, ERROR_IO);
    ck_assert_str_eq(err.source, "no-such-folder/m.json");
}
END_TEST

static const struct {
    const char *gpu, *text;
} requests[] = {
    {"", "\"\" names no GPU; a GPU and a link such as \"RTX 4070@gen4x16\" is what is needed"},
    {"RTX 4070@", "\"RTX 4070@\" names no link; a GPU and a link such as \"RTX 4070@gen4x16\" is "
                  "what is needed"},
    {"RTX 4079", "\"RTX 4079\" is no GPU of the catalogue; did you mean \"RTX 4070\"?"},
    {"H100", "\"H100\" fits several GPUs: H100 PCIe and H100 SXM"},
    {"RTX 6000", "\"RTX 6000\" fits several GPUs: RTX 6000 Ada and Quadro RTX 6000"},
    {"RTX 4070@gen4x3",
     "\"RTX 4070@gen4x3\": \"gen4x3\" is no link class; did you mean \"gen4x1\"? known: gen3x1, "
     "gen3x2, gen3x4, gen3x8, gen3x16, gen4x1, gen4x2, gen4x4, gen4x8, gen4x16, gen5x1, gen5x4, "
     "gen5x8, gen5x16, c2c, nvlink3x4, nvlink3x12, nvlink4x12, nvlink4x18 and nvlink5x18"},
    {"RTX 4060 Ti@gen4x16", "\"RTX 4060 Ti@gen4x16\": PCIe 4.0 x16 is more than GeForce RTX 4060 "
                            "Ti 16GB can use; at most PCIe 4.0 x8 is"},
    {"RTX 4070@gen5x16", "\"RTX 4070@gen5x16\": PCIe 5.0 x16 is more than GeForce RTX 4070 can "
                         "use; at most PCIe 4.0 x16 is"},
    {"RTX 3090@nvlink3x4", "\"RTX 3090@nvlink3x4\": NVLink 3 x4 does not join GeForce RTX 3090 to "
                           "the host; PCIe 4.0 x16 does"},
    {"0x RTX 3090", "\"0x RTX 3090\": 0 devices are not a machine; 1 to 16 are"},
    {"17x RTX 3090", "\"17x RTX 3090\": 17 devices are not a machine; 1 to 16 are"},
};

START_TEST(a_wrong_request_to_compose_is_refused)
{
    struct error err = {0};

    ck_assert_ptr_null(machine_compose(&requests[_i].gpu, 1, &err));
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_str_eq(err.text, requests[_i].text);
}
END_TEST

START_TEST(more_devices_than_a_machine_holds_are_refused)
{
    const char *const gpus[] = {"10x RTX 3090", "7x RTX 4090"};
    struct error err = {0}, none = {0};

    ck_assert_ptr_null(machine_compose(gpus, 2, &err));
    ck_assert_str_eq(err.text, "\"7x RTX 4090\" makes 17 devices; at most 16 are possible");
    ck_assert_ptr_null(machine_compose(gpus, 0, &none));
    ck_assert_str_eq(none.text, "no GPU named; one such as \"RTX 4070@gen4x16\" is needed");
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("machine_refusals");
    TCase *profiles = tcase_create("profiles");
    TCase *composing = tcase_create("composing");

    tcase_add_test(profiles, the_profile_that_the_cases_change_is_a_good_one);
    tcase_add_loop_test(profiles, a_malformed_profile_is_refused_at_its_place, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(profiles, a_wrong_part_of_the_other_profile_is_placed_in_that_profile);
    tcase_add_test(profiles, a_profile_that_comes_from_itself_is_refused);
    tcase_add_test(profiles, an_unknown_variant_is_refused_with_the_known_ones);
    tcase_add_test(profiles, an_unknown_name_is_refused_with_the_built_in_ones);
    tcase_add_test(profiles, a_file_that_is_not_there_is_named);
    tcase_add_loop_test(composing, a_wrong_request_to_compose_is_refused, 0,
                        (int)(sizeof requests / sizeof requests[0]));
    tcase_add_test(composing, more_devices_than_a_machine_holds_are_refused);
    suite_add_tcase(all, profiles);
    suite_add_tcase(all, composing);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
