/* PAPI for bare-metal guests: docs/papi.md tells what is the same as in PAPI and what is not. Link with libepapi.a.
 *
 * Functions begin with ePAPI_. With EPAPI_PLAIN_NAMES defined, or papi.h included instead, they have PAPI's names too. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef EPAPI_H
#define EPAPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAPI_VER_CURRENT 0x7030000
#define PAPI_NULL (-1)
#define PAPI_MAX_STR_LEN 128

/* Return codes. PAPI_strerror has their texts. */
#define PAPI_OK 0
/* errors: begin */
#define PAPI_EINVAL (-1)
#define PAPI_ENOMEM (-2)
#define PAPI_ESYS (-3)
#define PAPI_ECMP (-4)
#define PAPI_ECLOST (-5)
#define PAPI_EBUG (-6)
#define PAPI_ENOEVNT (-7)
#define PAPI_ECNFLCT (-8)
#define PAPI_ENOTRUN (-9)
#define PAPI_EISRUN (-10)
#define PAPI_ENOEVST (-11)
#define PAPI_ENOTPRESET (-12)
#define PAPI_ENOCNTR (-13)
#define PAPI_EMISC (-14)
#define PAPI_EPERM (-15)
#define PAPI_ENOINIT (-16)
#define PAPI_ENOCMP (-17)
#define PAPI_ENOSUPP (-18)
#define PAPI_ENOIMPL (-19)
#define PAPI_EBUF (-20)
#define PAPI_EINVAL_DOM (-21)
#define PAPI_EATTR (-22)
#define PAPI_ECOUNT (-23)
#define PAPI_ECOMBO (-24)
#define PAPI_ECMP_DISABLED (-25)
#define PAPI_EDELAY_INIT (-26)
#define PAPI_EMULPASS (-27)
/* errors: end */

/* States of an event set. */
#define PAPI_STOPPED 0x01
#define PAPI_RUNNING 0x02
#define PAPI_OVERFLOWING 0x10
#define PAPI_MULTIPLEXING 0x40

/* What can be counted. A native event is PAPI_NATIVE_MASK and its number in the PMU. */
#define PAPI_PRESET_MASK ((int)0x80000000)
#define PAPI_NATIVE_MASK ((int)0x40000000)
/* presets: begin */
#define PAPI_L1_DCM (PAPI_PRESET_MASK | 0x0) /* L1 data cache misses */
#define ePAPI_L1_DCM PAPI_L1_DCM
#define PAPI_L1_ICM (PAPI_PRESET_MASK | 0x1) /* L1 instruction cache misses */
#define ePAPI_L1_ICM PAPI_L1_ICM
#define PAPI_L2_DCM (PAPI_PRESET_MASK | 0x2) /* L2 data cache misses */
#define ePAPI_L2_DCM PAPI_L2_DCM
#define PAPI_L2_ICM (PAPI_PRESET_MASK | 0x3) /* L2 instruction cache misses */
#define ePAPI_L2_ICM PAPI_L2_ICM
#define PAPI_L3_DCM (PAPI_PRESET_MASK | 0x4) /* L3 data cache misses */
#define ePAPI_L3_DCM PAPI_L3_DCM
#define PAPI_L3_ICM (PAPI_PRESET_MASK | 0x5) /* L3 instruction cache misses */
#define ePAPI_L3_ICM PAPI_L3_ICM
#define PAPI_L1_TCM (PAPI_PRESET_MASK | 0x6) /* L1 cache misses */
#define ePAPI_L1_TCM PAPI_L1_TCM
#define PAPI_L2_TCM (PAPI_PRESET_MASK | 0x7) /* L2 cache misses */
#define ePAPI_L2_TCM PAPI_L2_TCM
#define PAPI_L3_TCM (PAPI_PRESET_MASK | 0x8) /* L3 cache misses */
#define ePAPI_L3_TCM PAPI_L3_TCM
#define PAPI_CA_SNP (PAPI_PRESET_MASK | 0x9) /* Snoops */
#define ePAPI_CA_SNP PAPI_CA_SNP
#define PAPI_CA_SHR (PAPI_PRESET_MASK | 0xa) /* Requests for a shared line */
#define ePAPI_CA_SHR PAPI_CA_SHR
#define PAPI_CA_CLN (PAPI_PRESET_MASK | 0xb) /* Requests for a clean line */
#define ePAPI_CA_CLN PAPI_CA_CLN
#define PAPI_CA_INV (PAPI_PRESET_MASK | 0xc) /* Requests to invalidate a line */
#define ePAPI_CA_INV PAPI_CA_INV
#define PAPI_CA_ITV (PAPI_PRESET_MASK | 0xd) /* Interventions of another cache */
#define ePAPI_CA_ITV PAPI_CA_ITV
#define PAPI_L3_LDM (PAPI_PRESET_MASK | 0xe) /* L3 load misses */
#define ePAPI_L3_LDM PAPI_L3_LDM
#define PAPI_L3_STM (PAPI_PRESET_MASK | 0xf) /* L3 store misses */
#define ePAPI_L3_STM PAPI_L3_STM
#define PAPI_BRU_IDL (PAPI_PRESET_MASK | 0x10) /* Cycles without a branch */
#define ePAPI_BRU_IDL PAPI_BRU_IDL
#define PAPI_FXU_IDL (PAPI_PRESET_MASK | 0x11) /* Cycles in which the integer units idle */
#define ePAPI_FXU_IDL PAPI_FXU_IDL
#define PAPI_FPU_IDL (PAPI_PRESET_MASK | 0x12) /* Cycles in which the floating-point units idle */
#define ePAPI_FPU_IDL PAPI_FPU_IDL
#define PAPI_LSU_IDL (PAPI_PRESET_MASK | 0x13) /* Cycles in which the load and store units idle */
#define ePAPI_LSU_IDL PAPI_LSU_IDL
#define PAPI_TLB_DM (PAPI_PRESET_MASK | 0x14) /* Data TLB misses */
#define ePAPI_TLB_DM PAPI_TLB_DM
#define PAPI_TLB_IM (PAPI_PRESET_MASK | 0x15) /* Instruction TLB misses */
#define ePAPI_TLB_IM PAPI_TLB_IM
#define PAPI_TLB_TL (PAPI_PRESET_MASK | 0x16) /* TLB misses */
#define ePAPI_TLB_TL PAPI_TLB_TL
#define PAPI_L1_LDM (PAPI_PRESET_MASK | 0x17) /* L1 load misses */
#define ePAPI_L1_LDM PAPI_L1_LDM
#define PAPI_L1_STM (PAPI_PRESET_MASK | 0x18) /* L1 store misses */
#define ePAPI_L1_STM PAPI_L1_STM
#define PAPI_L2_LDM (PAPI_PRESET_MASK | 0x19) /* L2 load misses */
#define ePAPI_L2_LDM PAPI_L2_LDM
#define PAPI_L2_STM (PAPI_PRESET_MASK | 0x1a) /* L2 store misses */
#define ePAPI_L2_STM PAPI_L2_STM
#define PAPI_BTAC_M (PAPI_PRESET_MASK | 0x1b) /* Branch target cache misses */
#define ePAPI_BTAC_M PAPI_BTAC_M
#define PAPI_PRF_DM (PAPI_PRESET_MASK | 0x1c) /* Data prefetches that missed */
#define ePAPI_PRF_DM PAPI_PRF_DM
#define PAPI_L3_DCH (PAPI_PRESET_MASK | 0x1d) /* L3 data cache hits */
#define ePAPI_L3_DCH PAPI_L3_DCH
#define PAPI_TLB_SD (PAPI_PRESET_MASK | 0x1e) /* TLB shootdowns */
#define ePAPI_TLB_SD PAPI_TLB_SD
#define PAPI_CSR_FAL (PAPI_PRESET_MASK | 0x1f) /* Failed conditional stores */
#define ePAPI_CSR_FAL PAPI_CSR_FAL
#define PAPI_CSR_SUC (PAPI_PRESET_MASK | 0x20) /* Successful conditional stores */
#define ePAPI_CSR_SUC PAPI_CSR_SUC
#define PAPI_CSR_TOT (PAPI_PRESET_MASK | 0x21) /* Conditional stores */
#define ePAPI_CSR_TOT PAPI_CSR_TOT
#define PAPI_MEM_SCY (PAPI_PRESET_MASK | 0x22) /* Cycles stalled for memory */
#define ePAPI_MEM_SCY PAPI_MEM_SCY
#define PAPI_MEM_RCY (PAPI_PRESET_MASK | 0x23) /* Cycles stalled for reads of memory */
#define ePAPI_MEM_RCY PAPI_MEM_RCY
#define PAPI_MEM_WCY (PAPI_PRESET_MASK | 0x24) /* Cycles stalled for writes of memory */
#define ePAPI_MEM_WCY PAPI_MEM_WCY
#define PAPI_STL_ICY (PAPI_PRESET_MASK | 0x25) /* Cycles without an instruction issued */
#define ePAPI_STL_ICY PAPI_STL_ICY
#define PAPI_FUL_ICY (PAPI_PRESET_MASK | 0x26) /* Cycles with the most instructions issued */
#define ePAPI_FUL_ICY PAPI_FUL_ICY
#define PAPI_STL_CCY (PAPI_PRESET_MASK | 0x27) /* Cycles without an instruction completed */
#define ePAPI_STL_CCY PAPI_STL_CCY
#define PAPI_FUL_CCY (PAPI_PRESET_MASK | 0x28) /* Cycles with the most instructions completed */
#define ePAPI_FUL_CCY PAPI_FUL_CCY
#define PAPI_HW_INT (PAPI_PRESET_MASK | 0x29) /* Hardware interrupts */
#define ePAPI_HW_INT PAPI_HW_INT
#define PAPI_BR_UCN (PAPI_PRESET_MASK | 0x2a) /* Unconditional branches */
#define ePAPI_BR_UCN PAPI_BR_UCN
#define PAPI_BR_CN (PAPI_PRESET_MASK | 0x2b) /* Conditional branches */
#define ePAPI_BR_CN PAPI_BR_CN
#define PAPI_BR_TKN (PAPI_PRESET_MASK | 0x2c) /* Conditional branches taken */
#define ePAPI_BR_TKN PAPI_BR_TKN
#define PAPI_BR_NTK (PAPI_PRESET_MASK | 0x2d) /* Conditional branches not taken */
#define ePAPI_BR_NTK PAPI_BR_NTK
#define PAPI_BR_MSP (PAPI_PRESET_MASK | 0x2e) /* Conditional branches mispredicted */
#define ePAPI_BR_MSP PAPI_BR_MSP
#define PAPI_BR_PRC (PAPI_PRESET_MASK | 0x2f) /* Conditional branches predicted correctly */
#define ePAPI_BR_PRC PAPI_BR_PRC
#define PAPI_FMA_INS (PAPI_PRESET_MASK | 0x30) /* Fused multiply-add instructions */
#define ePAPI_FMA_INS PAPI_FMA_INS
#define PAPI_TOT_IIS (PAPI_PRESET_MASK | 0x31) /* Instructions issued */
#define ePAPI_TOT_IIS PAPI_TOT_IIS
#define PAPI_TOT_INS (PAPI_PRESET_MASK | 0x32) /* Instructions completed */
#define ePAPI_TOT_INS PAPI_TOT_INS
#define PAPI_INT_INS (PAPI_PRESET_MASK | 0x33) /* Integer instructions */
#define ePAPI_INT_INS PAPI_INT_INS
#define PAPI_FP_INS (PAPI_PRESET_MASK | 0x34) /* Floating-point instructions */
#define ePAPI_FP_INS PAPI_FP_INS
#define PAPI_LD_INS (PAPI_PRESET_MASK | 0x35) /* Load instructions */
#define ePAPI_LD_INS PAPI_LD_INS
#define PAPI_SR_INS (PAPI_PRESET_MASK | 0x36) /* Store instructions */
#define ePAPI_SR_INS PAPI_SR_INS
#define PAPI_BR_INS (PAPI_PRESET_MASK | 0x37) /* Branch instructions */
#define ePAPI_BR_INS PAPI_BR_INS
#define PAPI_VEC_INS (PAPI_PRESET_MASK | 0x38) /* Vector instructions */
#define ePAPI_VEC_INS PAPI_VEC_INS
#define PAPI_RES_STL (PAPI_PRESET_MASK | 0x39) /* Cycles stalled for any resource */
#define ePAPI_RES_STL PAPI_RES_STL
#define PAPI_FP_STAL (PAPI_PRESET_MASK | 0x3a) /* Cycles in which floating-point units stall */
#define ePAPI_FP_STAL PAPI_FP_STAL
#define PAPI_TOT_CYC (PAPI_PRESET_MASK | 0x3b) /* Cycles */
#define ePAPI_TOT_CYC PAPI_TOT_CYC
#define PAPI_LST_INS (PAPI_PRESET_MASK | 0x3c) /* Load and store instructions */
#define ePAPI_LST_INS PAPI_LST_INS
#define PAPI_SYC_INS (PAPI_PRESET_MASK | 0x3d) /* Synchronization instructions */
#define ePAPI_SYC_INS PAPI_SYC_INS
#define PAPI_L1_DCH (PAPI_PRESET_MASK | 0x3e) /* L1 data cache hits */
#define ePAPI_L1_DCH PAPI_L1_DCH
#define PAPI_L2_DCH (PAPI_PRESET_MASK | 0x3f) /* L2 data cache hits */
#define ePAPI_L2_DCH PAPI_L2_DCH
#define PAPI_L1_DCA (PAPI_PRESET_MASK | 0x40) /* L1 data cache accesses */
#define ePAPI_L1_DCA PAPI_L1_DCA
#define PAPI_L2_DCA (PAPI_PRESET_MASK | 0x41) /* L2 data cache accesses */
#define ePAPI_L2_DCA PAPI_L2_DCA
#define PAPI_L3_DCA (PAPI_PRESET_MASK | 0x42) /* L3 data cache accesses */
#define ePAPI_L3_DCA PAPI_L3_DCA
#define PAPI_L1_DCR (PAPI_PRESET_MASK | 0x43) /* L1 data cache reads */
#define ePAPI_L1_DCR PAPI_L1_DCR
#define PAPI_L2_DCR (PAPI_PRESET_MASK | 0x44) /* L2 data cache reads */
#define ePAPI_L2_DCR PAPI_L2_DCR
#define PAPI_L3_DCR (PAPI_PRESET_MASK | 0x45) /* L3 data cache reads */
#define ePAPI_L3_DCR PAPI_L3_DCR
#define PAPI_L1_DCW (PAPI_PRESET_MASK | 0x46) /* L1 data cache writes */
#define ePAPI_L1_DCW PAPI_L1_DCW
#define PAPI_L2_DCW (PAPI_PRESET_MASK | 0x47) /* L2 data cache writes */
#define ePAPI_L2_DCW PAPI_L2_DCW
#define PAPI_L3_DCW (PAPI_PRESET_MASK | 0x48) /* L3 data cache writes */
#define ePAPI_L3_DCW PAPI_L3_DCW
#define PAPI_L1_ICH (PAPI_PRESET_MASK | 0x49) /* L1 instruction cache hits */
#define ePAPI_L1_ICH PAPI_L1_ICH
#define PAPI_L2_ICH (PAPI_PRESET_MASK | 0x4a) /* L2 instruction cache hits */
#define ePAPI_L2_ICH PAPI_L2_ICH
#define PAPI_L3_ICH (PAPI_PRESET_MASK | 0x4b) /* L3 instruction cache hits */
#define ePAPI_L3_ICH PAPI_L3_ICH
#define PAPI_L1_ICA (PAPI_PRESET_MASK | 0x4c) /* L1 instruction cache accesses */
#define ePAPI_L1_ICA PAPI_L1_ICA
#define PAPI_L2_ICA (PAPI_PRESET_MASK | 0x4d) /* L2 instruction cache accesses */
#define ePAPI_L2_ICA PAPI_L2_ICA
#define PAPI_L3_ICA (PAPI_PRESET_MASK | 0x4e) /* L3 instruction cache accesses */
#define ePAPI_L3_ICA PAPI_L3_ICA
#define PAPI_L1_ICR (PAPI_PRESET_MASK | 0x4f) /* L1 instruction cache reads */
#define ePAPI_L1_ICR PAPI_L1_ICR
#define PAPI_L2_ICR (PAPI_PRESET_MASK | 0x50) /* L2 instruction cache reads */
#define ePAPI_L2_ICR PAPI_L2_ICR
#define PAPI_L3_ICR (PAPI_PRESET_MASK | 0x51) /* L3 instruction cache reads */
#define ePAPI_L3_ICR PAPI_L3_ICR
#define PAPI_L1_ICW (PAPI_PRESET_MASK | 0x52) /* L1 instruction cache writes */
#define ePAPI_L1_ICW PAPI_L1_ICW
#define PAPI_L2_ICW (PAPI_PRESET_MASK | 0x53) /* L2 instruction cache writes */
#define ePAPI_L2_ICW PAPI_L2_ICW
#define PAPI_L3_ICW (PAPI_PRESET_MASK | 0x54) /* L3 instruction cache writes */
#define ePAPI_L3_ICW PAPI_L3_ICW
#define PAPI_L1_TCH (PAPI_PRESET_MASK | 0x55) /* L1 cache hits */
#define ePAPI_L1_TCH PAPI_L1_TCH
#define PAPI_L2_TCH (PAPI_PRESET_MASK | 0x56) /* L2 cache hits */
#define ePAPI_L2_TCH PAPI_L2_TCH
#define PAPI_L3_TCH (PAPI_PRESET_MASK | 0x57) /* L3 cache hits */
#define ePAPI_L3_TCH PAPI_L3_TCH
#define PAPI_L1_TCA (PAPI_PRESET_MASK | 0x58) /* L1 cache accesses */
#define ePAPI_L1_TCA PAPI_L1_TCA
#define PAPI_L2_TCA (PAPI_PRESET_MASK | 0x59) /* L2 cache accesses */
#define ePAPI_L2_TCA PAPI_L2_TCA
#define PAPI_L3_TCA (PAPI_PRESET_MASK | 0x5a) /* L3 cache accesses */
#define ePAPI_L3_TCA PAPI_L3_TCA
#define PAPI_L1_TCR (PAPI_PRESET_MASK | 0x5b) /* L1 cache reads */
#define ePAPI_L1_TCR PAPI_L1_TCR
#define PAPI_L2_TCR (PAPI_PRESET_MASK | 0x5c) /* L2 cache reads */
#define ePAPI_L2_TCR PAPI_L2_TCR
#define PAPI_L3_TCR (PAPI_PRESET_MASK | 0x5d) /* L3 cache reads */
#define ePAPI_L3_TCR PAPI_L3_TCR
#define PAPI_L1_TCW (PAPI_PRESET_MASK | 0x5e) /* L1 cache writes */
#define ePAPI_L1_TCW PAPI_L1_TCW
#define PAPI_L2_TCW (PAPI_PRESET_MASK | 0x5f) /* L2 cache writes */
#define ePAPI_L2_TCW PAPI_L2_TCW
#define PAPI_L3_TCW (PAPI_PRESET_MASK | 0x60) /* L3 cache writes */
#define ePAPI_L3_TCW PAPI_L3_TCW
#define PAPI_FML_INS (PAPI_PRESET_MASK | 0x61) /* Floating-point multiplications */
#define ePAPI_FML_INS PAPI_FML_INS
#define PAPI_FAD_INS (PAPI_PRESET_MASK | 0x62) /* Floating-point additions */
#define ePAPI_FAD_INS PAPI_FAD_INS
#define PAPI_FDV_INS (PAPI_PRESET_MASK | 0x63) /* Floating-point divisions */
#define ePAPI_FDV_INS PAPI_FDV_INS
#define PAPI_FSQ_INS (PAPI_PRESET_MASK | 0x64) /* Floating-point square roots */
#define ePAPI_FSQ_INS PAPI_FSQ_INS
#define PAPI_FNV_INS (PAPI_PRESET_MASK | 0x65) /* Floating-point inversions */
#define ePAPI_FNV_INS PAPI_FNV_INS
#define PAPI_FP_OPS (PAPI_PRESET_MASK | 0x66) /* Floating-point operations */
#define ePAPI_FP_OPS PAPI_FP_OPS
#define PAPI_SP_OPS (PAPI_PRESET_MASK | 0x67) /* Single-precision operations, vectors scaled */
#define ePAPI_SP_OPS PAPI_SP_OPS
#define PAPI_DP_OPS (PAPI_PRESET_MASK | 0x68) /* Double-precision operations, vectors scaled */
#define ePAPI_DP_OPS PAPI_DP_OPS
#define PAPI_VEC_SP (PAPI_PRESET_MASK | 0x69) /* Single-precision vector instructions */
#define ePAPI_VEC_SP PAPI_VEC_SP
#define PAPI_VEC_DP (PAPI_PRESET_MASK | 0x6a) /* Double-precision vector instructions */
#define ePAPI_VEC_DP PAPI_VEC_DP
#define PAPI_REF_CYC (PAPI_PRESET_MASK | 0x6b) /* Cycles of a reference clock */
#define ePAPI_REF_CYC PAPI_REF_CYC
#define PAPI_HP_OPS (PAPI_PRESET_MASK | 0x6c) /* Half-precision operations, vectors scaled */
#define ePAPI_HP_OPS PAPI_HP_OPS
#define PAPI_VEC_HP (PAPI_PRESET_MASK | 0x6d) /* Half-precision vector instructions */
#define ePAPI_VEC_HP PAPI_VEC_HP
/* presets: end */

/* The high-level functions, as PAPI 5.7 had them. */
int ePAPI_num_counters(void);
int ePAPI_start_counters(int *events, int array_len);
int ePAPI_read_counters(long long *values, int array_len);
int ePAPI_accum_counters(long long *values, int array_len);
int ePAPI_stop_counters(long long *values, int array_len);
int ePAPI_ipc(float *rtime, float *ptime, long long *ins, float *ipc);
int ePAPI_epc(int event, float *rtime, float *ptime, long long *ref, long long *core, long long *evt, float *epc);

/* The low-level functions. */
int ePAPI_start(int EventSet);
int ePAPI_read(int EventSet, long long *values);
int ePAPI_accum(int EventSet, long long *values);
int ePAPI_stop(int EventSet, long long *values);
int ePAPI_reset(int EventSet);
int ePAPI_create_eventset(int *EventSet);
int ePAPI_add_event(int EventSet, int Event);
int ePAPI_add_events(int EventSet, int *Events, int number);
int ePAPI_add_named_event(int EventSet, const char *EventName);
int ePAPI_remove_event(int EventSet, int Event);
int ePAPI_remove_events(int EventSet, int *Events, int number);
int ePAPI_remove_named_event(int EventSet, const char *EventName);
int ePAPI_cleanup_eventset(int EventSet);
int ePAPI_event_name_to_code(const char *in, int *out);
int ePAPI_list_events(int EventSet, int *Events, int *number);
int ePAPI_num_events(int EventSet);
int ePAPI_state(int EventSet, int *status);

/* Beyond the ePAPI paper: what PAPI programs call besides. */
typedef void (*PAPI_overflow_handler_t)(int EventSet, void *address, long long overflow_vector, void *context);
int ePAPI_library_init(int version);
int ePAPI_is_initialized(void);
int ePAPI_destroy_eventset(int *EventSet);
int ePAPI_assign_eventset_component(int EventSet, int cidx);
const char *ePAPI_strerror(int errorCode);
int ePAPI_query_event(int EventCode);
int ePAPI_query_named_event(const char *EventName);
int ePAPI_event_code_to_name(int EventCode, char *out);
int ePAPI_multiplex_init(void);
int ePAPI_set_multiplex(int EventSet);
int ePAPI_overflow(int EventSet, int EventCode, int threshold, int flags, PAPI_overflow_handler_t handler);
int ePAPI_get_overflow_event_index(int EventSet, long long overflow_vector, int *array, int *number);
int ePAPI_num_hwctrs(void);
long long ePAPI_get_real_usec(void);
long long ePAPI_get_real_nsec(void);

/* Beyond PAPI. */

/* What is known about an event. */
typedef struct {
    int event_code;
    int derived;   /* 1: a sum or difference of several native events */
    int closeness; /* 0: exact; 1: an upper bound; 2: something near */
    int runs;      /* how many runs it takes to count it once; 0: no counter can */
    int count;     /* how many native events it is made of */
    int code[12];  /* their codes */
    int sign[12];  /* 1: it is added; -1: it is subtracted */
    char symbol[PAPI_MAX_STR_LEN];
    char long_descr[PAPI_MAX_STR_LEN];
} ePAPI_event_info_t;
int ePAPI_event_info(int EventCode, ePAPI_event_info_t *info);

/* The worst verdict on what an event is made of, on a machine with verdicts, such as "virt-model". */
enum {
    ePAPI_TRUSTED = 1,
    ePAPI_EXPECTATION_CORRECTED,
    ePAPI_CORRECTED,
    ePAPI_FITTED,
    ePAPI_QUARANTINED,
    ePAPI_DEAD,
    ePAPI_NOT_MODELLED,
    ePAPI_NO_EVENT,
};
int ePAPI_event_verdict(int EventCode, const char *machine);

/* For the handler of the PMU's interrupt: calls the handlers of overflow. Returns how many events were due. */
int ePAPI_interrupt(void *address, void *context);
/* For the handler of a timer: gives the next events of a multiplexed set their turn. */
int ePAPI_multiplex_tick(void);
/* Where the calling core's results are written from now on; a null pointer: nowhere. */
int ePAPI_set_results(uint64_t *words, size_t bytes);

#ifdef EPAPI_PLAIN_NAMES
/* names: begin */
#define PAPI_accum ePAPI_accum
#define PAPI_accum_counters ePAPI_accum_counters
#define PAPI_add_event ePAPI_add_event
#define PAPI_add_events ePAPI_add_events
#define PAPI_add_named_event ePAPI_add_named_event
#define PAPI_assign_eventset_component ePAPI_assign_eventset_component
#define PAPI_cleanup_eventset ePAPI_cleanup_eventset
#define PAPI_create_eventset ePAPI_create_eventset
#define PAPI_destroy_eventset ePAPI_destroy_eventset
#define PAPI_epc ePAPI_epc
#define PAPI_event_code_to_name ePAPI_event_code_to_name
#define PAPI_event_info ePAPI_event_info
#define PAPI_event_name_to_code ePAPI_event_name_to_code
#define PAPI_event_verdict ePAPI_event_verdict
#define PAPI_get_overflow_event_index ePAPI_get_overflow_event_index
#define PAPI_get_real_nsec ePAPI_get_real_nsec
#define PAPI_get_real_usec ePAPI_get_real_usec
#define PAPI_interrupt ePAPI_interrupt
#define PAPI_ipc ePAPI_ipc
#define PAPI_is_initialized ePAPI_is_initialized
#define PAPI_library_init ePAPI_library_init
#define PAPI_list_events ePAPI_list_events
#define PAPI_multiplex_init ePAPI_multiplex_init
#define PAPI_multiplex_tick ePAPI_multiplex_tick
#define PAPI_num_counters ePAPI_num_counters
#define PAPI_num_events ePAPI_num_events
#define PAPI_num_hwctrs ePAPI_num_hwctrs
#define PAPI_overflow ePAPI_overflow
#define PAPI_query_event ePAPI_query_event
#define PAPI_query_named_event ePAPI_query_named_event
#define PAPI_read ePAPI_read
#define PAPI_read_counters ePAPI_read_counters
#define PAPI_remove_event ePAPI_remove_event
#define PAPI_remove_events ePAPI_remove_events
#define PAPI_remove_named_event ePAPI_remove_named_event
#define PAPI_reset ePAPI_reset
#define PAPI_set_multiplex ePAPI_set_multiplex
#define PAPI_set_results ePAPI_set_results
#define PAPI_start ePAPI_start
#define PAPI_start_counters ePAPI_start_counters
#define PAPI_state ePAPI_state
#define PAPI_stop ePAPI_stop
#define PAPI_stop_counters ePAPI_stop_counters
#define PAPI_strerror ePAPI_strerror
/* names: end */
#endif

#ifdef __cplusplus
}
#endif

#endif
